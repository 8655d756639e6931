"""Starts one process of the host, beneath a supervisor or on its own, and waits for its exit
without asyncio's child watchers, so that it works in a loop of any thread.
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
from stepwell.sandbox.waiting import readable

SUPERVISOR_SECONDS = 10.0
"""How long the supervisor may take to end everything, before it is ended itself."""


class Launch(Struct, frozen=True, kw_only=True):
    """A process to start on the host: mostly a sandbox's own program, with the command behind it.

    Beneath a supervisor, which is the default, whatever it leaves behind is ended before
    ``run_process`` returns, detached grandchildren included. A sandbox that sees to that by itself,
    such as one with a pid namespace, saves some 20 ms with ``supervised=False``.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    """All that this process sees of an environment; nothing is inherited."""
    directory: Path | None = None
    pass_fds: tuple[int, ...] = ()
    program: Program | None = None
    """What is executed as ``argv[0]``, without looking for it again; only if not supervised."""
    supervised: bool = True
    limits: Mapping[str, int] = {}
    """Limits of ``resource`` for it, by name, such as ``RLIMIT_DATA``; only if it is supervised."""
    join_files: tuple[Path, ...] = ()
    """``cgroup.procs`` files that it joins before it starts; only if it is supervised."""


class CannotStart(Exception):
    """A program that does not exist or can't be run: a result of the command, not a failure."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Spawned:
    """A process that runs, with the ends of its pipes on our side."""

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
        """Where its input is written to."""
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def close_stdin(self) -> None:
        """Let it know that no more input comes."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def exited(self) -> int:
        """Wait for its exit; a death by signal is negative. May be asked again."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or one that is older than 5.3
            return await asyncio.to_thread(self._process.wait)
        try:
            await readable(descriptor)
        finally:
            os.close(descriptor)
        return self._process.wait()

    async def end(self, exit: "asyncio.Task[int]") -> None:
        """End it and, if it is supervised, all it started. Raises if something may live on."""
        if self._control is None:
            if not exit.done():
                self._process.kill()
            await exit
            return
        # The supervisor takes it as the order to end everything.
        self._control.shutdown(socket.SHUT_WR)
        done, _ = await asyncio.wait({exit}, timeout=SUPERVISOR_SECONDS)
        if not done:
            self._process.kill()
            await exit
        self._control.setblocking(False)
        try:
            last_word = self._control.recv(64)
        except OSError:
            last_word = b""
        if last_word != supervisor.ALL_ENDED:
            raise SandboxError(
                "not every process that the command started could be ended: one runs as another "
                "user, or the command killed its supervisor; look for what still runs"
            )

    def close(self) -> None:
        """Let go of the pipes."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self._control is not None:
            self._control.close()


def spawn(launch: Launch, *, with_stdin: bool) -> Spawned:
    """Start it. Raises ``CannotStart`` for what a shell would tell with 126 or 127."""
    _refuse_unusable(launch.argv)
    if launch.supervised:
        try:
            return _spawn_supervised(launch, with_stdin)
        except OSError as error:
            raise SandboxError(f"no process could be started: {error.strerror}") from error
    return Spawned(_popen(launch, with_stdin))


def _spawn_supervised(launch: Launch, with_stdin: bool) -> Spawned:
    import resource

    python = host_python()
    orders = supervisor.written(
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
            pass_fds=(theirs.fileno(), *handover.inherited, *launch.pass_fds),
        )
        spawned = Spawned(_popen(supervised, with_stdin), ours)
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
            # So that a Ctrl-C in a terminal reaches it through us only.
            start_new_session=True,
        )
    except OSError as error:
        if directory is not None and str(error.filename) == str(directory):
            raise SandboxError(
                f"the directory {directory} can't be worked in: {error.strerror}; "
                "make it, or give another in the policy"
            ) from error
        if error.filename is None and error.errno != errno.E2BIG:
            raise SandboxError(f"no process could be started: {error.strerror}") from error
        missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
        raise CannotStart(f"{argv[0]}: {error.strerror}", 127 if missing else 126) from error


def check_command(argv: Sequence[str]) -> None:
    """A sandbox's own program, given no command, would do as it likes."""
    if not argv:
        raise SandboxError("there is no command to run; give at least a program's name")


def _refuse_unusable(argv: Sequence[str]) -> None:
    check_command(argv)
    for part in argv:
        try:
            unusable = b"\0" in os.fsencode(part)
        except UnicodeEncodeError:
            unusable = True
        if unusable:
            raise CannotStart(
                "the command holds a NUL or half of a character, which no program can be given", 126
            )
