"""Runs one process to its end, for every sandbox: streams its outputs, keeps their end, enforces
the timeouts, and leaves nothing alive. The sandbox confines it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from stepwell.errors import SandboxError
from stepwell.sandbox.output import OutputTail
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.sandbox import Channel, Ending, OutputListener, SandboxResult
from stepwell.sandbox.spawned_process import (
    CannotStartError,
    Launch,
    SpawnedProcess,
    check_command,
    spawn,
)
from stepwell.sandbox.waits import finish_uncancelled, private_task, wait_readable, wait_writable

__all__ = ["Launch", "Started", "Sweep", "check_command", "run_process"]

Started = Callable[[int], Awaitable[None]]
Sweep = Callable[[], Coroutine[Any, Any, None]]

READ_BYTES = 65_536
DRAIN_SECONDS = 1.0
"""How long outputs are read after the end; they close at once unless another process has them."""


async def run_process(
    launch: Launch,
    policy: ExecutionPolicy,
    *,
    stdin: bytes = b"",
    on_output: OutputListener | None = None,
    on_start: Started | None = None,
    sweep: Sweep | None = None,
) -> SandboxResult:
    """Run a process to its end, within the time and output limits of the policy.

    ``on_start`` is awaited with the pid of the process before it gets any input. ``sweep`` is
    awaited once after it ended, in every case: it kills what a kill of the process does not reach
    (such as a container), and must not raise for what is gone already. The policy's time limits do
    not apply to it, and it is never cancelled. If ``on_start`` or ``on_output`` raises, everything
    is killed and the exception is raised; the same holds for a cancellation.

    A missing program gives exit code 127, one that can't run 126, each with a text in ``stderr``.
    Death by a signal gives 128 plus its number.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    tails = _tails(policy, on_output)
    try:
        spawned = spawn(launch, with_stdin=bool(stdin))
    except CannotStartError as failure:
        await _sweep(sweep)
        tails[Channel.STDERR].feed(f"{failure}\n".encode(errors="replace"))
        return _result(failure.exit_code, Ending.EXITED, tails, loop.time() - started)
    except SandboxError:
        await _sweep(sweep)
        raise
    run = _RunningProcess(spawned, policy, tails, stdin)
    finished = False
    try:
        if on_start is not None:
            await on_start(spawned.pid)
        ending = await run.wait()
        finished = True
    finally:
        await finish_uncancelled(run.end(sweep, drain=finished))
    return _result(run.exit_code(ending), ending, tails, loop.time() - started)


async def _sweep(sweep: Sweep | None) -> None:
    if sweep is not None:
        await finish_uncancelled(sweep())


class _RunningProcess:
    """A started process and its tasks."""

    def __init__(
        self,
        spawned: SpawnedProcess,
        policy: ExecutionPolicy,
        tails: Mapping[Channel, OutputTail],
        stdin: bytes,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._spawned = spawned
        self._policy = policy
        self._last_output_at = self._started_at = self._loop.time()
        self._exit = private_task(spawned.wait())
        self._pumps = [
            asyncio.ensure_future(self._pump(spawned.outputs[channel], tail))
            for channel, tail in tails.items()
        ]
        self._stdin = stdin
        self._feed: asyncio.Task[None] | None = None

    async def wait(self) -> Ending:
        """Wait until the process ends or times out. Raises what a listener raised."""
        if self._stdin:
            self._feed = asyncio.ensure_future(self._feed_stdin(self._stdin))
        while not self._exit.done():
            remaining, ending = self._next_deadline()
            if remaining is not None and remaining <= 0:
                return ending
            pending = {self._exit, *(pump for pump in self._pumps if not pump.done())}
            done, _ = await asyncio.wait(
                pending, timeout=remaining, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        return Ending.EXITED

    async def end(self, sweep: Sweep | None, *, drain: bool) -> None:
        """Kill what is left of it and release its resources."""
        try:
            try:
                await self._spawned.end(self._exit)
            finally:
                if sweep is not None:
                    await sweep()
            if drain:
                await self._drain()
        finally:
            await self._release()

    def exit_code(self, ending: Ending) -> int:
        """Return the exit code as a shell would report it."""
        code = self._exit.result()
        return 137 if ending is not Ending.EXITED else code if code >= 0 else 128 - code

    def _next_deadline(self) -> tuple[float | None, Ending]:
        """Return how long to wait, and how the command ends if nothing happens until then."""
        now = self._loop.time()
        policy = self._policy
        deadlines: list[tuple[float, Ending]] = []
        if policy.timeout is not None:
            deadlines.append((self._started_at + policy.timeout - now, Ending.TIMED_OUT))
        if policy.idle_timeout is not None:
            deadlines.append((self._last_output_at + policy.idle_timeout - now, Ending.IDLE))
        return min(deadlines, default=(None, Ending.EXITED))

    async def _pump(self, descriptor: int, tail: OutputTail) -> None:
        while True:
            try:
                piece = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                await wait_readable(descriptor)
                continue
            if not piece:
                break
            self._last_output_at = self._loop.time()
            tail.feed(piece)
            # A command that writes without pause must not keep the timeouts from being checked.
            await asyncio.sleep(0)
        tail.close()

    async def _feed_stdin(self, stdin: bytes) -> None:
        descriptor = self._spawned.stdin
        left = memoryview(stdin)
        try:
            while left:
                try:
                    left = left[os.write(descriptor, left[:READ_BYTES]) :]
                except BlockingIOError:
                    await wait_writable(descriptor)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the command does not read its input to the end
        finally:
            self._spawned.close_stdin()

    async def _drain(self) -> None:
        """Read what is left in the pipes, which close with the last process that holds them."""
        done, _ = await asyncio.wait(self._pumps, timeout=DRAIN_SECONDS)
        for pump in done:
            pump.result()

    async def _release(self) -> None:
        tasks = [*self._pumps, *([self._feed] if self._feed is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._spawned.close()


def _tails(
    policy: ExecutionPolicy, on_output: OutputListener | None
) -> Mapping[Channel, OutputTail]:
    return {
        channel: OutputTail(
            keep=policy.max_output, emit=partial(on_output, channel) if on_output else None
        )
        for channel in Channel
    }


def _result(
    exit_code: int, ending: Ending, tails: Mapping[Channel, OutputTail], seconds: float
) -> SandboxResult:
    stdout, stderr = tails[Channel.STDOUT], tails[Channel.STDERR]
    return SandboxResult(
        exit_code=exit_code,
        stdout=stdout.text,
        stderr=stderr.text,
        ending=ending,
        stdout_bytes=stdout.total,
        stderr_bytes=stderr.total,
        duration_seconds=seconds,
    )
