"""The processes of a run: the one the host started, the keeper, the supervisor, the command.

The first waits. The keeper adopts whatever the command leaves behind and ends it, also when the
first was killed. The supervisor confines the command and answers the calls sandlock intercepts.
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
"""Exit code for "not confined, so not run"; the reason went to the host."""
TOO_MUCH_MEMORY = 137
LOOK_MILLISECONDS = 20
"""How often the memory in use is looked at, where no control group limits it."""
URGENT = -10
SMALLEST_DATA_LIMIT = 128 * 1024 * 1024
"""What the supervisor needs itself; below this only the group or the look limits memory."""
SIGKILL = 9
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
# Root keeps what work in a directory of somebody else takes: chown, dac_override, fowner.
KEPT_CAPABILITIES = 0b1011
CAPABILITY_VERSION = 0x20080522
LIBC = ctypes.CDLL(None, use_errno=True)


def main(words: Sequence[str]) -> None:
    """Run the order to its end and exit as its command did."""
    order = Order(words)
    lifeline, held = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        os.close(held)
        os._exit(_keep(order, lifeline))
    os.close(lifeline)
    os.close(order.number("--alive"))
    # The end of this process is the keeper's order to end everything.
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != order.number("--host"):
        os._exit(REFUSED)
    _, status = os.waitpid(keeper, 0)
    os._exit(_exit_code(status))


def _keep(order: Order, lifeline: int) -> int:
    # A session of its own: a kill of the host's process group does not reach the keeper.
    os.setsid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    supervisor = os.fork()
    if supervisor == 0:
        os.close(lifeline)
        os._exit(_supervise(order))
    overused = _watch(order, lifeline, supervisor)
    # The supervisor first: without it the calls that start processes fail.
    os.kill(supervisor, SIGKILL)
    _, status = os.waitpid(supervisor, 0)
    _end_children()
    _remove_groups(order)
    if overused:
        limit = order.one("--memory")
        os.write(2, f"stepwell: ended, it used more than the {limit} bytes of memory\n".encode())
        return TOO_MUCH_MEMORY
    return _exit_code(status)


def _watch(order: Order, lifeline: int, supervisor: int) -> bool:
    """Wait for the end of the supervisor or of who waits for us; whether memory was overused."""
    watched = select.poll()
    watched.register(lifeline, select.POLLIN)
    watched.register(os.pidfd_open(supervisor), select.POLLIN)
    limit = order.number("--memory")
    if not limit or order.one("--join"):  # the kernel looks
        watched.poll()
        return False
    if os.geteuid() == 0:
        # A normal user may not; its keeper takes turns with what it watches.
        LIBC.setpriority(os.PRIO_PROCESS, 0, URGENT)
    while not watched.poll(LOOK_MILLISECONDS):
        if exceeds(limit, beneath=os.getpid(), apart_from=supervisor):
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
    """Remove the control groups, if the host that would do so is gone: nobody hears it any more."""
    host = select.poll()
    host.register(order.number("--alive"), 0)
    for file in order.all("--join") if host.poll(0) else ():
        try:
            os.rmdir(os.path.dirname(file))
        except OSError:
            return  # the next host does


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
        # Late: what this process has used until now is not counted as the command's.
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
            f"it can't be put under its limits ({file}: {error.strerror}), which max_memory=None "
            "does without"
        ) from error


def _limit_data(memory: int) -> None:
    """The kernel's own limit for each process, so that one alone gets an error, not a kill."""
    if memory:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = max(memory, SMALLEST_DATA_LIMIT)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _prctl(*arguments: int) -> None:
    padded = (*arguments, 0, 0, 0, 0)[:5]
    if LIBC.prctl(*(ctypes.c_ulong(argument) for argument in padded)) != 0:
        raise Refused(f"prctl {arguments[0]}: {os.strerror(ctypes.get_errno())}")


def _drop_capabilities() -> None:
    """Leave root with what file permissions take; with more it could make devices or chroot."""
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()
    if LIBC.capget(header, sets) != 0:
        raise Refused(f"capget: {os.strerror(ctypes.get_errno())}")
    if sets[0] or sets[3]:
        for capability in range(64):
            if not KEPT_CAPABILITIES >> capability & 1:
                # It may fail; without new privileges exec can't give any of them back anyhow.
                LIBC.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    kept = [part & KEPT_CAPABILITIES for part in (sets[0], sets[1])]
    reduced = (ctypes.c_uint32 * 6)(*kept, 0, 0, 0, 0)
    if LIBC.capset(header, reduced) != 0:
        raise Refused(f"capset: {os.strerror(ctypes.get_errno())}")
