"""The process between this one and a command without a pid namespace: a program of its own that
uses only the standard library. It adopts what the command leaves behind, and kills all of it when
the command is over, on request, and when the process that started it is gone.

It runs once per command, so it imports little.
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
    import _signal as signal  # the public module takes 5 ms longer to load

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MAX_KILL_ROUNDS = 500
ROUND_SECONDS = 0.01
ALL_ENDED = b"all ended"
"""The last message to the other side; without it something may have survived."""
PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); import supervisor; supervisor.main()"
"""Imports the module instead of running it as a script, which is compiled again at every start."""

Orders = tuple[list[bytes], list[bytes], list[bytes], list[bytes]]
"""The command, its environment, limits by the numbers of ``resource`` (both as ``name=value``), and
``cgroup.procs`` files to join."""


def encode_orders(orders: Orders) -> bytes:
    """Encode orders: each list after its length, a NUL after each field.

    >>> encode_orders(([b"echo", b""], [b"A=1"], [], []))
    b'2\\x00echo\\x00\\x001\\x00A=1\\x000\\x000\\x00'
    """
    fields = [field for part in orders for field in (b"%d" % len(part), *part)]
    return b"".join(field + b"\0" for field in fields)


def decode_orders(data: bytes) -> Orders:
    """Decode orders.

    >>> decode_orders(encode_orders(([b"echo", b""], [b"A=1"], [], [])))
    ([b'echo', b''], [b'A=1'], [], [])
    """
    fields = iter(data.split(b"\0"))

    def part() -> list[bytes]:
        return [next(fields) for _ in range(int(next(fields)))]

    return part(), part(), part(), part()


def main() -> None:
    """Read the orders from one descriptor, run the command, and kill everything at the end, or
    earlier if the other descriptor says so."""
    control, orders_descriptor = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(control, False)
    with open(orders_descriptor, "rb") as file:
        orders = decode_orders(file.read())
    wakeup, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.signal(signal.SIGCHLD, _ignore_signal)
    signal.signal(signal.SIGTERM, _ignore_signal)
    signal.set_wakeup_fd(wakeup_write)
    _adopt_orphans()
    if select.select([control], [], [], 0)[0]:  # no longer wanted
        _report_end(control)
        os._exit(128 + signal.SIGKILL)
    command = os.fork()
    if command == 0:
        _become(orders)
    # A pipe held only by this process would hide from the reader that all others are gone.
    for stream in (0, 1, 2):
        os.close(stream)
    status = _watch(command, control, wakeup)
    if _end_descendants(command):
        _report_end(control)
    os._exit(status)


def _ignore_signal(*_: object) -> None:
    """Do nothing; a handler is needed so that the signal wakes the watch."""


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
    """Search the PATH and execute, like ``os.execvpe`` but with fewer imports."""
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


def _watch(command: int, control: int, wakeup: int) -> int:
    """Wait until the command ends or everything must be killed, and return the exit code."""
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
        ready, _, _ = select.select([control, wakeup], [], [])
        # Nothing is sent after the orders, so the other side is done or gone.
        if control in ready or signal.SIGTERM in os.read(wakeup, 4096):
            return 128 + signal.SIGKILL


def _end_descendants(command: int) -> bool:
    """Kill all descendants and return whether all are gone. They are stopped first, so that none
    starts another meanwhile."""
    if sys.platform != "linux":
        _signal(-command, signal.SIGKILL)
    if _reap():
        return True
    stopped: set[int] = set()
    while unstopped := _descendants() - stopped:
        for pid in unstopped:
            _signal(pid, signal.SIGSTOP)
        stopped |= unstopped
    for _ in range(MAX_KILL_ROUNDS):
        for pid in _descendants():
            _signal(pid, signal.SIGKILL)
        if _reap():
            return True
        select.select([], [], [], ROUND_SECONDS)
    return False


def _reap() -> bool:
    """Reap ended children and return whether none is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _report_end(control: int) -> None:
    try:
        os.write(control, ALL_ENDED)
    except OSError:
        return  # nobody is listening


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _descendants() -> set[int]:
    """Return all descendants of this process, according to the parents in ``/proc``."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    queue = [os.getpid()]
    while queue:
        for pid in children.get(queue.pop(), ()):
            found.add(pid)
            queue.append(pid)
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
