"""Confines commands with Landlock and seccomp through the ``sandlock`` wheel, without namespaces.

The host starts the program in ``sandlock_child``, which confines the command and kills all of it at
the end.
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
from stepwell.sandbox.cgroups import ControlGroup, control_group, with_memory_outcome
from stepwell.sandbox.environment import command_environment
from stepwell.sandbox.handover import check_in_place
from stepwell.sandbox.host.import_guard import guard_imports
from stepwell.sandbox.host.program import host_python
from stepwell.sandbox.host.protection import hidden_paths, protect
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.private_folder import private_folder
from stepwell.sandbox.processes import Launch, check_command, run_process
from stepwell.sandbox.sandbox import OutputListener, SandboxResult
from stepwell.sandbox.waits import wait_readable

CREATE_RULESET_CALL, GET_VERSION = 444, 1
MIN_LANDLOCK = 6
"""The first version that also restricts signals and abstract unix sockets."""
END_SECONDS = 10.0
MACHINES = ("x86_64", "aarch64")
ENVIRONMENT_PREFIX = "STEPWELL_COMMAND_"
PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from sandlock_child.keeper import main; main(sys.argv[1:])"
)

# What system programs need. Of /etc only public files: no keys, no shadow.
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
    """Confines commands with Landlock and seccomp, as root or as a normal user.

    Commands see the real file system but can access only what the policy names. There is no
    ``/dev/shm``, and temporary files go to a private directory named by ``TMPDIR``.

    >>> SandlockSandbox().name
    'sandlock'
    """

    @property
    def name(self) -> str:
        """The name for messages."""
        return "sandlock"

    def unavailable(self) -> str | None:
        """Return why it can't be used on this machine, or None; a cheap check that starts
        nothing."""
        if sys.platform != "linux":
            return f"sandlock needs Linux, and this is {sys.platform}"
        if platform.machine() not in MACHINES:
            return f"sandlock needs one of {', '.join(MACHINES)}, and this is {platform.machine()}"
        version = _landlock_version()
        if version < MIN_LANDLOCK:
            return (
                f"sandlock needs Landlock {MIN_LANDLOCK} (Linux 6.12 with landlock among its "
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
        """Run a command to its end; see ``Sandbox.run``."""
        check_command(argv)
        _check_utf8(argv)
        reason = self.unavailable()
        if reason is not None:
            raise SandboxError(f"{reason}; or choose another sandbox")
        _check_enforceable(policy)
        guard_imports(policy)
        keeper = _Keeper()
        try:
            async with private_folder() as temporary:
                environment = command_environment(
                    policy, home=str(temporary), temporary=str(temporary)
                )
                # Created last: from here on run_process removes it, whatever fails.
                keeper.reserve(policy)
                result = await run_process(
                    _launch(argv, policy, temporary, environment, keeper),
                    policy,
                    stdin=stdin,
                    on_output=on_output,
                    on_start=keeper.on_start,
                    sweep=keeper.wait_gone,
                )
        finally:
            keeper.close()
        if keeper.refusal:
            raise SandboxError(
                f"sandlock can't confine this command, so it was not run: {keeper.refusal}; "
                "choose another sandbox"
            )
        return with_memory_outcome(result, keeper.group)


class _Keeper:
    """Our end of a pipe that the keeper of a run holds until all processes of the command are gone,
    and the command's control group."""

    def __init__(self) -> None:
        try:
            self._read_end, self.write_end = os.pipe()
        except OSError as error:
            raise SandboxError(f"no process could be started: {error.strerror}") from error
        os.set_blocking(self._read_end, False)
        self.refusal = ""
        self.group: ControlGroup | None = None

    def reserve(self, policy: ExecutionPolicy) -> None:
        """Create the control group that limits memory, if possible."""
        # sandlock counts processes; a group would count their threads as well.
        self.group = control_group(replace(policy, max_processes=None))

    async def on_start(self, _: int) -> None:
        """Close the write end, which is the keeper's: a fork of this process would hold it as
        well."""
        self._close_write_end()

    async def wait_gone(self) -> None:
        """Wait until the keeper is gone, then remove the group."""
        self._close_write_end()
        try:
            await self._read_refusal()
        finally:
            if self.group is not None:
                await self.group.remove()

    async def _read_refusal(self) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                while text := await self._read():
                    self.refusal += text.decode(errors="replace")
        except TimeoutError as error:
            raise SandboxError(
                "the command's processes can't be killed: some still exist after "
                f"{END_SECONDS:.0f} seconds"
            ) from error

    async def _read(self) -> bytes:
        await wait_readable(self._read_end)
        return os.read(self._read_end, 4096)

    def close(self) -> None:
        """Close the pipe."""
        self._close_write_end()
        os.close(self._read_end)

    def _close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1


def _check_utf8(argv: Sequence[str]) -> None:
    for word in argv:
        if any("\udc80" <= character <= "\udcff" for character in word):
            raise SandboxError(
                f"sandlock accepts only UTF-8 arguments, not {word!r:.80}; use bubblewrap"
            )


def _check_enforceable(policy: ExecutionPolicy) -> None:
    writable_paths = (policy.directory, *policy.writable)
    check_in_place(*writable_paths, *policy.readable)
    for path in policy.readable:
        for root in writable_paths:
            if root in path.parents:
                raise SandboxError(
                    f"sandlock can't keep the readable path {path} read-only, because it lies in "
                    f"the writable {root}; leave it out of readable, or use bubblewrap"
                )
    if protected := protect(policy).read_only:
        raise SandboxError(
            f"sandlock can't keep {protected[0]} read-only, because it lies in a writable path; "
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
        # Renamed, so that none of them (such as LD_PRELOAD) affects unconfined processes.
        environment={ENVIRONMENT_PREFIX + name: value for name, value in environment.items()},
        directory=policy.directory,
        pass_fds=(keeper.write_end,),
        # The keeper makes sure that nothing survives.
        supervised=False,
    )


def _options(policy: ExecutionPolicy, temporary: Path, keeper: _Keeper) -> Iterator[str]:
    yield from ("--library", str(_library()), "--host", str(os.getpid()))
    yield from ("--alive", str(keeper.write_end))
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
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for library in Path(folder).glob("libsandlock_ffi*.so"):
            return library
    return None


@cache
def _landlock_version() -> int:
    """Ask the kernel directly, because loading the wheel takes long."""
    call = ctypes.CDLL(None).syscall
    return call(CREATE_RULESET_CALL, None, ctypes.c_size_t(0), ctypes.c_uint32(GET_VERSION))
