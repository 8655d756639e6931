"""Runs one process of the host to its end, for every sandbox: streams its outputs, keeps the last
of them, watches the clock, and leaves nothing alive. What confines it is the sandbox's matter.
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
from stepwell.sandbox.spawning import CannotStart, Launch, Spawned, check_command, spawn
from stepwell.sandbox.waiting import private_task, readable, unbroken, writable

__all__ = ["Launch", "Started", "Sweep", "check_command", "run_process"]

Started = Callable[[int], Awaitable[None]]
Sweep = Callable[[], Coroutine[Any, Any, None]]

READ_BYTES = 65_536
DRAIN_SECONDS = 1.0
"""How long outputs are read on once all ended; they end at once, unless a stranger has them."""


async def run_process(
    launch: Launch,
    policy: ExecutionPolicy,
    *,
    stdin: bytes = b"",
    on_output: OutputListener | None = None,
    on_start: Started | None = None,
    sweep: Sweep | None = None,
) -> SandboxResult:
    """Run it to its end, under the time and output limits of the policy.

    ``on_start`` is awaited with the pid of the process once it runs, before it is given any input.
    ``sweep`` is awaited once after it ended, however it did: it ends what a kill of the process
    does not reach (such as a container), and must not raise for what is gone already. Time limits
    of the policy do not count for it, and it is never cancelled. If ``on_start`` or ``on_output``
    raises, all is ended and the exception passes on; so does a cancellation.

    A program that does not exist gives exit code 127, one that can't be run 126, each with a text
    in ``stderr``. Death by a signal is 128 plus its number.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    tails = _tails(policy, on_output)
    try:
        spawned = spawn(launch, with_stdin=bool(stdin))
    except CannotStart as failure:
        await _swept(sweep)
        tails[Channel.STDERR].take(f"{failure}\n".encode(errors="replace"))
        return _result(failure.exit_code, Ending.EXITED, tails, loop.time() - began)
    except SandboxError:
        await _swept(sweep)
        raise
    run = _Run(spawned, policy, tails, stdin)
    finished = False
    try:
        if on_start is not None:
            await on_start(spawned.pid)
        ending = await run.over()
        finished = True
    finally:
        await unbroken(run.ended(sweep, drain=finished))
    return _result(run.exit_code(ending), ending, tails, loop.time() - began)


async def _swept(sweep: Sweep | None) -> None:
    if sweep is not None:
        await unbroken(sweep())


class _Run:
    """A process that was started, and the tasks around it."""

    def __init__(
        self,
        spawned: Spawned,
        policy: ExecutionPolicy,
        tails: Mapping[Channel, OutputTail],
        stdin: bytes,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._spawned = spawned
        self._policy = policy
        self._heard_at = self._began_at = self._loop.time()
        self._exit = private_task(spawned.exited())
        self._pumps = [
            asyncio.ensure_future(self._pump(spawned.outputs[channel], tail))
            for channel, tail in tails.items()
        ]
        self._stdin = stdin
        self._feed: asyncio.Task[None] | None = None

    async def over(self) -> Ending:
        """Wait until the process is over, or is out of time. Raises what a listener raised."""
        if self._stdin:
            self._feed = asyncio.ensure_future(self._fed(self._stdin))
        while not self._exit.done():
            remaining, ending = self._patience()
            if remaining is not None and remaining <= 0:
                return ending
            waited_for = {self._exit, *(pump for pump in self._pumps if not pump.done())}
            done, _ = await asyncio.wait(
                waited_for, timeout=remaining, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        return Ending.EXITED

    async def ended(self, sweep: Sweep | None, *, drain: bool) -> None:
        """End whatever is left of it, and let go of all it used."""
        try:
            try:
                await self._spawned.end(self._exit)
            finally:
                if sweep is not None:
                    await sweep()
            if drain:
                await self._drained()
        finally:
            await self._let_go()

    def exit_code(self, ending: Ending) -> int:
        """The exit code as a shell would tell it."""
        code = self._exit.result()
        return 137 if ending is not Ending.EXITED else code if code >= 0 else 128 - code

    def _patience(self) -> tuple[float | None, Ending]:
        """How long to wait for now, and what it means if that was in vain."""
        now = self._loop.time()
        policy = self._policy
        waits: list[tuple[float, Ending]] = []
        if policy.timeout is not None:
            waits.append((self._began_at + policy.timeout - now, Ending.TIMED_OUT))
        if policy.idle_timeout is not None:
            waits.append((self._heard_at + policy.idle_timeout - now, Ending.IDLE))
        return min(waits, default=(None, Ending.EXITED))

    async def _pump(self, descriptor: int, tail: OutputTail) -> None:
        while True:
            try:
                piece = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                await readable(descriptor)
                continue
            if not piece:
                break
            self._heard_at = self._loop.time()
            tail.take(piece)
            # A command that never stops talking must not keep the clock from being looked at.
            await asyncio.sleep(0)
        tail.close()

    async def _fed(self, stdin: bytes) -> None:
        descriptor = self._spawned.stdin
        left = memoryview(stdin)
        try:
            while left:
                try:
                    left = left[os.write(descriptor, left[:READ_BYTES]) :]
                except BlockingIOError:
                    await writable(descriptor)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it does not want to read more, which is its own affair
        finally:
            self._spawned.close_stdin()

    async def _drained(self) -> None:
        """Read what is still in the pipes. Their ends close with the last process that has them."""
        done, _ = await asyncio.wait(self._pumps, timeout=DRAIN_SECONDS)
        for pump in done:
            pump.result()

    async def _let_go(self) -> None:
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
            keep=policy.max_output, tell=partial(on_output, channel) if on_output else None
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
