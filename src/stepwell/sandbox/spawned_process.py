"""Starts a process, supervised or not, and waits for its exit without asyncio's child watchers, so
that it works in the event loop of any thread.
"""

import asyncio
import errno
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from stepwell.errors import SandboxError
from stepwell.sandbox import supervisor
from stepwell.sandbox.handover import Handover
from stepwell.sandbox.host.program import Program, host_python
from stepwell.sandbox.sandbox import Channel
from stepwell.sandbox.waits import wait_readable

SUPERVISOR_SECONDS = 10.0
"""How long the supervisor may take to kill everything before it is killed itself."""


class Launch(Struct, frozen=True, kw_only=True):
    """A process to start on the host: usually a sandbox's own program with the command as argument.

    By default a supervisor kills everything it leaves behind before ``run_process`` returns,
    including detached grandchildren. A sandbox that guarantees this itself, for example with a pid
    namespace, saves about 20 ms with ``supervised=False``.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    """The complete environment of the process; nothing is inherited."""
    directory: Path | None = None
    pass_fds: tuple[int, ...] = ()
    program: Program | None = None
    """The file to execute as ``argv[0]``, without a search; only if not supervised."""
    supervised: bool = True
    limits: Mapping[str, int] = {}
    """Limits of the module ``resource`` by name, such as ``RLIMIT_DATA``; only if supervised."""
    join_files: tuple[Path, ...] = ()
    """``cgroup.procs`` files to join before the start; only if supervised."""


class CannotStartError(Exception):
    """Raised for a program that is missing or can't run: a result of the command, not a failure."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class SpawnedProcess:
    """A running process and our ends of its pipes."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", control: socket.socket | None = None
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._control = control
        self.pid = process.pid
        self.outputs: Mapping[Channel, int] = {
            Channel.STDOUT: process.stdout.fileno(),
            Channel.STDERR: process.stderr.fileno(),
        }
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)

    @property
    def stdin(self) -> int:
        """The descriptor for its input."""
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def close_stdin(self) -> None:
        """Signal the end of input."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def wait(self) -> int:
        """Wait for its exit and return the code, negative for a signal. May be called again."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or one that is older than 5.3
            return await asyncio.to_thread(self._process.wait)
        try:
            await wait_readable(descriptor)
        finally:
            os.close(descriptor)
        return self._process.wait()

    async def end(self, exit: "asyncio.Task[int]") -> None:
        """Kill it and, if supervised, all it started. Raises if something may have survived."""
        if self._control is None:
            if not exit.done():
                self._process.kill()
            await exit
            return
        # The supervisor takes this as the order to kill everything.
        self._control.shutdown(socket.SHUT_WR)
        done, _ = await asyncio.wait({exit}, timeout=SUPERVISOR_SECONDS)
        if not done:
            self._process.kill()
            await exit
        self._control.setblocking(False)
        try:
            report = self._control.recv(64)
        except OSError:
            report = b""
        if report != supervisor.ALL_ENDED:
            raise SandboxError(
                "not every process that the command started could be killed: one runs as another "
                "user, or the command killed its supervisor; check what is still running"
            )

    def close(self) -> None:
        """Close the pipes."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self._control is not None:
            self._control.close()


def spawn(launch: Launch, *, with_stdin: bool) -> SpawnedProcess:
    """Start a process. Raises ``CannotStartError`` if a shell would exit with 126 or 127."""
    _check_argv(launch.argv)
    if launch.supervised:
        try:
            return _spawn_supervised(launch, with_stdin)
        except OSError as error:
            raise SandboxError(f"no process could be started: {error.strerror}") from error
    return SpawnedProcess(_popen(launch, with_stdin))


def _spawn_supervised(launch: Launch, with_stdin: bool) -> SpawnedProcess:
    import resource

    python = host_python()
    orders = supervisor.encode_orders(
        (
            [os.fsencode(part) for part in launch.argv],
            [os.fsencode(f"{name}={value}") for name, value in launch.environment.items()],
            [b"%d=%d" % (getattr(resource, kind), it) for kind, it in launch.limits.items()],
            [os.fsencode(path) for path in launch.join_files],
        )
    )
    ours, theirs = socket.socketpair()
    with theirs, Handover() as handover, ExitStack() as unless_started:
        unless_started.enter_context(ours)
        ends = (str(theirs.fileno()), handover.data(orders))
        folder = str(Path(supervisor.__file__).parent)
        supervised = Launch(
            argv=(python.path, "-I", "-S", "-c", supervisor.PROGRAM, folder, *ends),
            program=python,
            environment={},
            directory=launch.directory,
            pass_fds=(theirs.fileno(), *handover.inherited_descriptors, *launch.pass_fds),
        )
        spawned = SpawnedProcess(_popen(supervised, with_stdin), ours)
        unless_started.pop_all()
    return spawned


def _popen(launch: Launch, with_stdin: bool) -> "subprocess.Popen[bytes]":
    argv, directory = launch.argv, launch.directory
    try:
        return subprocess.Popen(
            list(argv),
            executable=launch.program.executable if launch.program is not None else None,
            bufsize=0,
            stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            env=dict(launch.environment),
            pass_fds=launch.pass_fds,
            # A Ctrl-C in a terminal must reach it only through us.
            start_new_session=True,
        )
    except OSError as error:
        if directory is not None and str(error.filename) == str(directory):
            raise SandboxError(
                f"the directory {directory} can't be used: {error.strerror}; create it, or set "
                "another in the policy"
            ) from error
        if error.filename is None and error.errno != errno.E2BIG:
            raise SandboxError(f"no process could be started: {error.strerror}") from error
        missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
        raise CannotStartError(f"{argv[0]}: {error.strerror}", 127 if missing else 126) from error


def check_command(argv: Sequence[str]) -> None:
    """Refuse an empty command: a sandbox's program without one might do anything."""
    if not argv:
        raise SandboxError("the command is empty; pass at least the name of a program")


def _check_argv(argv: Sequence[str]) -> None:
    check_command(argv)
    for part in argv:
        try:
            is_invalid = b"\0" in os.fsencode(part)
        except UnicodeEncodeError:
            is_invalid = True
        if is_invalid:
            raise CannotStartError(
                "the command contains a NUL or half of a character, which no argument can", 126
            )
