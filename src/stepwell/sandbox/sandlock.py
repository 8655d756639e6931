"""Commands confined by Landlock and seccomp, with the ``sandlock`` wheel: no namespaces needed.

The host starts the program in ``sandlock_child``, which confines the command and ends all of it.
"""

import asyncio
import ctypes
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from msgspec.structs import replace

from stepwell.errors import SandboxError
from stepwell.sandbox.cgroups import ControlGroup, control_group, memory_told
from stepwell.sandbox.environment import command_environment
from stepwell.sandbox.handover import check_in_place
from stepwell.sandbox.host.import_guard import guard_imports
from stepwell.sandbox.host.program import host_python
from stepwell.sandbox.host.protection import hidden_paths, protect
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.private_folder import private_folder
from stepwell.sandbox.processes import Launch, check_command, run_process
from stepwell.sandbox.sandbox import OutputListener, SandboxResult
from stepwell.sandbox.waiting import readable

CREATE_RULESET_CALL, ASK_FOR_VERSION = 444, 1
NEEDED_LANDLOCK = 6
"""The version that can also keep signals and abstract unix sockets inside."""
END_SECONDS = 10.0
MACHINES = ("x86_64", "aarch64")
ENVIRONMENT_PREFIX = "STEPWELL_COMMAND_"
PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from sandlock_child.keeper import main; main(sys.argv[1:])"
)

# What programs of the system need. Of /etc only what is public by nature: no keys, no shadow.
SYSTEM_PATHS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone"),
    *("/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/services", "/etc/protocols"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs"),
    *("/etc/mime.types", "/etc/os-release", "/etc/debian_version", "/etc/inputrc", "/etc/magic"),
    *("/etc/bash.bashrc", "/etc/fonts", "/etc/locale.alias", "/etc/perl", "/etc/terminfo"),
    *(f"/etc/java-{version}-openjdk" for version in (11, 17, 21, 25)),
    *(f"/etc/python3{version}" for version in ("", ".11", ".12", ".13", ".14")),
    *("/sys/devices/system/cpu", "/dev/random", "/dev/urandom"),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full")


class SandlockSandbox:
    """Confines commands with Landlock and seccomp, as root and as a normal user.

    Commands see the real file system but can use only what the policy names. There is no
    ``/dev/shm``, and temporary files go to a directory of the run's own, which ``TMPDIR`` names.

    >>> SandlockSandbox().name
    'sandlock'
    """

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return "sandlock"

    def unavailable(self) -> str | None:
        """Why it can't be used on this machine, if so; a cheap look that starts nothing."""
        if sys.platform != "linux":
            return f"sandlock needs Linux, and this is {sys.platform}"
        if platform.machine() not in MACHINES:
            return f"sandlock needs one of {', '.join(MACHINES)}, and this is {platform.machine()}"
        version = _landlock_version()
        if version < NEEDED_LANDLOCK:
            return (
                f"sandlock needs Landlock {NEEDED_LANDLOCK} (Linux 6.12 with landlock among its "
                f"security modules), and this kernel has {max(version, 0) or 'none'}"
            )
        if _library() is None:
            return "the package sandlock is missing; `pip install 'stepwell[sandbox]'`"
        return None

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        """Run a command to its end. Raises ``SandboxError`` if it can't be confined so."""
        check_command(argv)
        _refuse_unsayable(argv)
        reason = self.unavailable()
        if reason is not None:
            raise SandboxError(f"{reason}; or choose another sandbox")
        _refuse_unenforceable(policy)
        guard_imports(policy)
        keeper = _Keeper()
        try:
            async with private_folder() as temporary:
                environment = command_environment(
                    policy, home=str(temporary), temporary=str(temporary)
                )
                # Last of all that may fail, since from here on run_process sees to its removal.
                keeper.reserve(policy)
                result = await run_process(
                    _launch(argv, policy, temporary, environment, keeper),
                    policy,
                    stdin=stdin,
                    on_output=on_output,
                    on_start=keeper.started,
                    sweep=keeper.gone,
                )
        finally:
            keeper.close()
        if keeper.refusal:
            raise SandboxError(
                f"sandlock can't confine this command, so it was not run: {keeper.refusal}; "
                "choose another sandbox"
            )
        return memory_told(result, keeper.group)


class _Keeper:
    """Our end of a pipe that the keeper of a run holds until nothing of the command lives, and the
    control group of the command."""

    def __init__(self) -> None:
        try:
            self._reading, self.descriptor = os.pipe()
        except OSError as error:
            raise SandboxError(f"no process could be started: {error.strerror}") from error
        os.set_blocking(self._reading, False)
        self.refusal = ""
        self.group: ControlGroup | None = None

    def reserve(self, policy: ExecutionPolicy) -> None:
        """Make the control group that limits memory, where one can be made."""
        # Processes are counted by sandlock: a group would count their threads as well.
        self.group = control_group(replace(policy, max_processes=None))

    async def started(self, _: int) -> None:
        """Leave the other end to the keeper: a fork of this process would hold it as well."""
        self._close_writing()

    async def gone(self) -> None:
        """Wait until the keeper is gone, and remove the group."""
        self._close_writing()
        try:
            await self._listened()
        finally:
            if self.group is not None:
                await self.group.remove()

    async def _listened(self) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                while said := await self._heard():
                    self.refusal += said.decode(errors="replace")
        except TimeoutError as error:
            raise SandboxError(
                "what the command started can't be ended: some of it is still there after "
                f"{END_SECONDS:.0f} seconds"
            ) from error

    async def _heard(self) -> bytes:
        await readable(self._reading)
        return os.read(self._reading, 4096)

    def close(self) -> None:
        """Let go of the pipe."""
        self._close_writing()
        os.close(self._reading)

    def _close_writing(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _refuse_unsayable(argv: Sequence[str]) -> None:
    for word in argv:
        if any("\udc80" <= character <= "\udcff" for character in word):
            raise SandboxError(
                f"sandlock can only be given words that are UTF-8, not {word!r:.80}; use bubblewrap"
            )


def _refuse_unenforceable(policy: ExecutionPolicy) -> None:
    written = (policy.directory, *policy.writable)
    check_in_place(*written, *policy.readable)
    for path in policy.readable:
        for root in written:
            if root in path.parents:
                raise SandboxError(
                    f"sandlock can't keep the readable path {path} read-only, because it lies in "
                    f"the writable {root}; leave it out of readable, or use bubblewrap"
                )
    if unprotected := protect(policy).read_only:
        raise SandboxError(
            f"sandlock can't keep {unprotected[0]} read-only, because it lies in a writable path; "
            "use bubblewrap, work in another directory, or allow commands to write it with "
            "protected=[...] (for names) or protect_host=False (for what this process executes) in "
            "the policy"
        )
    if readable := hidden_paths(policy):
        raise SandboxError(
            f"sandlock can't hide {readable[0]}, because it lies in a path that commands may read; "
            "use bubblewrap, work in another directory, or allow commands to read it with "
            "hidden=[...] in the policy"
        )


def _launch(
    argv: Sequence[str],
    policy: ExecutionPolicy,
    temporary: Path,
    environment: Mapping[str, str],
    keeper: _Keeper,
) -> Launch:
    python = host_python()
    return Launch(
        program=python,
        argv=(
            *(python.path, "-I", "-S", "-c", PROGRAM, str(Path(__file__).parent)),
            *_options(policy, temporary, keeper),
            *("--", *argv),
        ),
        # Renamed, so that none of them (LD_PRELOAD, say) works on what is not confined.
        environment={ENVIRONMENT_PREFIX + name: value for name, value in environment.items()},
        directory=policy.directory,
        pass_fds=(keeper.descriptor,),
        # The keeper sees to it that nothing lives on.
        supervised=False,
    )


def _options(policy: ExecutionPolicy, temporary: Path, keeper: _Keeper) -> Iterator[str]:
    yield from ("--library", str(_library()), "--host", str(os.getpid()))
    yield from ("--alive", str(keeper.descriptor))
    for file in keeper.group.join_files if keeper.group is not None else ():
        yield from ("--join", str(file))
    yield from ("--directory", str(policy.directory))
    for path in (policy.directory, temporary, *policy.writable):
        yield from ("--write", str(path))
    for path in (*filter(os.path.exists, SYSTEM_PATHS), *policy.readable):
        yield from ("--read", str(path))
    for path in DEVICES:
        yield from ("--device", path)
    if policy.max_memory is not None:
        yield from ("--memory", str(policy.max_memory))
    if policy.max_processes is not None:
        yield from ("--processes", str(policy.max_processes))
    if policy.network:
        yield from ("--network", "on")


@cache
def _library() -> Path | None:
    spec = find_spec("sandlock")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for library in Path(place).glob("libsandlock_ffi*.so"):
            return library
    return None


@cache
def _landlock_version() -> int:
    """Asks the kernel directly: loading the wheel for it would take long."""
    call = ctypes.CDLL(None).syscall
    return call(CREATE_RULESET_CALL, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_FOR_VERSION))
