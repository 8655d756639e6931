"""The process between this one and a command that no namespace holds: a program of its own, with
the standard library only. It adopts whatever the command leaves behind, and ends all of it when the
command is over, when it is told to, and when the process that started it is gone.

It starts for each command, so it imports little.
"""

import ctypes
import errno
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # what the public one adds takes 5 ms to load

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PATIENCE_ROUNDS = 500
ROUND_SECONDS = 0.01
ALL_ENDED = b"all ended"
"""What the other side is told last; without it something may live on."""
PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); import supervisor; supervisor.main()"
"""Imported, not run as a script: those are compiled anew at every start."""

Orders = tuple[list[bytes], list[bytes], list[bytes], list[bytes]]
"""What to run, its environment, limits by the numbers of ``resource`` (both with ``=`` between name
and value), ``cgroup.procs`` files to join."""


def written(orders: Orders) -> bytes:
    """Orders as they are handed over: each list behind its length, a NUL after each field.

    >>> written(([b"echo", b""], [b"A=1"], [], []))
    b'2\\x00echo\\x00\\x001\\x00A=1\\x000\\x000\\x00'
    """
    fields = [field for part in orders for field in (b"%d" % len(part), *part)]
    return b"".join(field + b"\0" for field in fields)


def read(data: bytes) -> Orders:
    """The orders again.

    >>> read(written(([b"echo", b""], [b"A=1"], [], [])))
    ([b'echo', b''], [b'A=1'], [], [])
    """
    fields = iter(data.split(b"\0"))

    def part() -> list[bytes]:
        return [next(fields) for _ in range(int(next(fields)))]

    return part(), part(), part(), part()


def main() -> None:
    """Take what to run from one descriptor, run it, and end everything, also if told by another."""
    control, ordered = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(control, False)
    with open(ordered, "rb") as file:
        orders = read(file.read())
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, _ignored)
    signal.signal(signal.SIGTERM, _ignored)
    signal.set_wakeup_fd(wake)
    _adopt_orphans()
    if select.select([control], [], [], 0)[0]:  # nobody wants it any more
        _tell(control)
        os._exit(128 + signal.SIGKILL)
    command = os.fork()
    if command == 0:
        _become(orders)
    # A pipe that only this process still held would hide from the other end that all are gone.
    for stream in (0, 1, 2):
        os.close(stream)
    status = _watch(command, control, woken)
    if _end_descendants(command):
        _tell(control)
    os._exit(status)


def _ignored(*_: object) -> None:
    """A handler is there so that the signal wakes the watch."""


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _become(orders: Orders) -> None:
    """Turn this child into the command; never returns."""
    argv, environment, limits, joins = orders
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for path in joins:
            with open(path, "wb", buffering=0) as procs:
                procs.write(b"0")
        for limit in limits:
            _limit(*(int(part) for part in limit.split(b"=")))
        _execute(argv, dict(variable.split(b"=", 1) for variable in environment))
    except OSError as error:
        os.write(2, argv[0] + f": {error.strerror}\n".encode())
        os._exit(127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126)


def _limit(kind: int, value: int) -> None:
    import resource

    hard = resource.getrlimit(kind)[1]
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (lowest, lowest))


def _execute(argv: list[bytes], environment: dict[bytes, bytes]) -> None:
    """As ``os.execvpe``, which imports more than it takes to find a program."""
    if b"/" in argv[0]:
        os.execve(argv[0], argv, environment)
    places = environment.get(b"PATH", b"/usr/bin:/bin").split(b":") if argv[0] else []
    failure = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in places:
        try:
            os.execve(os.path.join(folder, argv[0]), argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failure = error
    raise failure


def _watch(command: int, control: int, woken: int) -> int:
    """Wait until the command is over, or until all shall end."""
    while True:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 128 + signal.SIGKILL
            if pid == command:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if pid == 0:
                break
        ready, _, _ = select.select([control, woken], [], [])
        # Nothing is ever sent after the orders: the other side is done with us, or gone.
        if control in ready or signal.SIGTERM in os.read(woken, 4096):
            return 128 + signal.SIGKILL


def _end_descendants(command: int) -> bool:
    """Whether all are gone. All are stopped first, so that none starts another meanwhile."""
    if sys.platform != "linux":
        _signal(-command, signal.SIGKILL)
    if _reaped():
        return True
    stopped: set[int] = set()
    while fresh := _descendants() - stopped:
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        stopped |= fresh
    for _ in range(PATIENCE_ROUNDS):
        for pid in _descendants():
            _signal(pid, signal.SIGKILL)
        if _reaped():
            return True
        select.select([], [], [], ROUND_SECONDS)
    return False


def _reaped() -> bool:
    """Whether no child is left, once those that ended are gone."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _tell(control: int) -> None:
    try:
        os.write(control, ALL_ENDED)
    except OSError:
        return  # nobody is left to hear it


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _descendants() -> set[int]:
    """Everything below this process, by the parents that the system names."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    below = [os.getpid()]
    while below:
        for pid in children.get(below.pop(), ()):
            found.add(pid)
            below.append(pid)
    return found


def _parents() -> "list[tuple[int, int]]":
    if not os.path.isdir("/proc/self"):
        return []
    pairs: list[tuple[int, int]] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != b"Z":
                pairs.append((int(name), int(fields[1])))
    return pairs
