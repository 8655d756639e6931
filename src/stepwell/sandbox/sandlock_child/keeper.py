"""The processes of a run: the first process, the keeper, the supervisor and the command.

The first, which the host starts, waits. The keeper adopts what the command leaves behind and kills
it, even if the first was killed. The supervisor confines the command and answers the calls that
sandlock intercepts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select

from .confinement import Confinement
from .descendants import children, exceeds
from .order import Order, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED = 125
"""Exit code for "not confined, so not run"; the reason is sent to the host."""
TOO_MUCH_MEMORY = 137
CHECK_MILLISECONDS = 20
"""How often the memory use is checked if no control group limits it."""
HIGH_PRIORITY = -10
MIN_DATA_LIMIT = 128 * 1024 * 1024
"""What the supervisor itself needs; below this only the group or the check limits memory."""
SIGKILL = 9
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
# Root keeps what it needs to work in another user's directory: chown, dac_override, fowner.
KEPT_CAPABILITIES = 0b1011
CAPABILITY_VERSION = 0x20080522
LIBC = ctypes.CDLL(None, use_errno=True)


def main(words: Sequence[str]) -> None:
    """Run the order and exit with the exit code of its command."""
    order = Order(words)
    lifeline, lifeline_write = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        os.close(lifeline_write)
        os._exit(_run_keeper(order, lifeline))
    os.close(lifeline)
    os.close(order.number("--alive"))
    # The end of this process tells the keeper to kill everything.
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != order.number("--host"):
        os._exit(REFUSED)
    _, status = os.waitpid(keeper, 0)
    os._exit(_exit_code(status))


def _run_keeper(order: Order, lifeline: int) -> int:
    # In its own session, a kill of the host's process group does not reach the keeper.
    os.setsid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    supervisor = os.fork()
    if supervisor == 0:
        os.close(lifeline)
        os._exit(_supervise(order))
    exceeded = _watch(order, lifeline, supervisor)
    # The supervisor first: without it, calls that start processes fail.
    os.kill(supervisor, SIGKILL)
    _, status = os.waitpid(supervisor, 0)
    _end_children()
    _remove_groups(order)
    if exceeded:
        limit = order.one("--memory")
        os.write(2, f"stepwell: killed for using more than {limit} bytes of memory\n".encode())
        return TOO_MUCH_MEMORY
    return _exit_code(status)


def _watch(order: Order, lifeline: int, supervisor: int) -> bool:
    """Wait for the end of the supervisor or of the first process. Return whether the memory limit
    was exceeded."""
    watched = select.poll()
    watched.register(lifeline, select.POLLIN)
    watched.register(os.pidfd_open(supervisor), select.POLLIN)
    limit = order.number("--memory")
    if not limit or order.one("--join"):  # the kernel enforces the limit
        watched.poll()
        return False
    if os.geteuid() == 0:
        # Only root may raise the priority.
        LIBC.setpriority(os.PRIO_PROCESS, 0, HIGH_PRIORITY)
    while not watched.poll(CHECK_MILLISECONDS):
        if exceeds(limit, beneath=os.getpid(), except_for=supervisor):
            return True
    return False


def _end_children() -> None:
    while True:
        for child in children(os.getpid()):
            os.kill(child, SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _remove_groups(order: Order) -> None:
    """Remove the control groups if the host, which normally does, is gone."""
    host = select.poll()
    host.register(order.number("--alive"), 0)
    for file in order.all("--join") if host.poll(0) else ():
        try:
            os.rmdir(os.path.dirname(file))
        except OSError:
            return  # the next host removes it


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _supervise(order: Order) -> int:
    to_host = order.number("--alive")
    try:
        os.set_inheritable(to_host, False)
        _prctl(PR_SET_PDEATHSIG, SIGKILL)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        _drop_capabilities()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit_data(order.number("--memory"))
        confinement = Confinement(order)
        # Late, so that memory used by this process so far does not count for the command.
        for file in order.all("--join"):
            _join(file)
        return confinement.run()
    except (Refused, OSError) as error:
        os.write(to_host, str(error).encode())
        return REFUSED


def _join(file: str) -> None:
    try:
        with open(file, "wb", buffering=0) as processes:
            processes.write(b"0")
    except OSError as error:
        raise Refused(
            f"it can't be put under its limits ({file}: {error.strerror}); set max_memory=None to "
            "run without"
        ) from error


def _limit_data(memory: int) -> None:
    """Set the kernel's limit per process, so that a single process gets an error and no kill."""
    if memory:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = max(memory, MIN_DATA_LIMIT)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _prctl(*arguments: int) -> None:
    padded = (*arguments, 0, 0, 0, 0)[:5]
    if LIBC.prctl(*(ctypes.c_ulong(argument) for argument in padded)) != 0:
        raise Refused(f"prctl {arguments[0]}: {os.strerror(ctypes.get_errno())}")


def _drop_capabilities() -> None:
    """Drop root's capabilities except those for file permissions: others allow devices, chroot."""
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()
    if LIBC.capget(header, sets) != 0:
        raise Refused(f"capget: {os.strerror(ctypes.get_errno())}")
    if sets[0] or sets[3]:
        for capability in range(64):
            if not KEPT_CAPABILITIES >> capability & 1:
                # May fail; with no_new_privs exec can't restore any of them anyway.
                LIBC.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    reduced_sets = [part & KEPT_CAPABILITIES for part in (sets[0], sets[1])]
    reduced = (ctypes.c_uint32 * 6)(*reduced_sets, 0, 0, 0, 0)
    if LIBC.capset(header, reduced) != 0:
        raise Refused(f"capset: {os.strerror(ctypes.get_errno())}")
