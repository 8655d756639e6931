"""One call of a broadcaster, which is foreign code: whatever it does ends as an error text or None.

An async broadcaster shares the event loop with the run; a sync one is called in a thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future as ThreadFuture
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from typing import Any

from msgspec import to_builtins

from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.delivery.calling_thread import CallingThread, Returned
from stepwell.clock import Clock
from stepwell.errors import describe

BLOCKING_SECONDS = 0.1
"""Seconds after which an async broadcaster that blocks the event loop is reported."""

SECONDS_TO_CLEAN_UP = 0.5
"""Seconds that a cancelled call has to clean up."""


class BroadcastCall:
    """Sends one envelope, once, and knows whether the broadcaster has returned."""

    def __init__(
        self,
        broadcaster: CanBroadcastAgentEvents,
        caller: CallingThread,
        clock: Clock,
        report_blocking: Callable[[float], None],
    ) -> None:
        self._broadcaster = broadcaster
        self._caller = caller
        self._clock = clock
        self._report_blocking = report_blocking
        self._task: asyncio.Task[str | None] | None = None
        self._thread: ThreadFuture[Returned] | None = None
        self._times_abandoned = 0
        self.has_begun = False
        self.is_late = False

    @property
    def is_over(self) -> bool:
        """Whether the broadcaster has returned. A coroutine does not outlive its event loop."""
        task = self._task
        if task is not None and not task.done() and task.get_loop().is_running():
            return False
        return self._thread is None or self._thread.done()

    async def outcome(
        self, channel: str, envelope: Mapping[str, Any], seconds: float | None
    ) -> str | None:
        """Send it and return the error, or None. The call is abandoned after so many seconds."""
        self._task = task = asyncio.create_task(self._call(channel, envelope))
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            await self._end_with_the_loop(task)
            raise
        if not task.done():
            self._abandon(task)
            await asyncio.wait({task}, timeout=SECONDS_TO_CLEAN_UP)
            self.is_late = True
            return f"it did not return within {seconds:g} seconds"
        return _why(task)

    async def over(self, seconds: float) -> None:
        """Wait until the broadcaster returns. After so many seconds the call is late.

        It may have begun on an earlier event loop.
        """
        if not self.is_late:
            await self._return(seconds)
            self.is_late = not self.is_over
        else:
            await self._return(None)

    async def _return(self, seconds: float | None) -> None:
        task, thread = self._task, self._thread
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({task}, timeout=seconds)
        if thread is not None and not thread.done():
            waiting = asyncio.wrap_future(thread)
            try:
                await asyncio.wait({waiting}, timeout=seconds)
            finally:
                waiting.cancel()  # or the thread would call this event loop after its end

    async def _call(self, channel: str, envelope: Mapping[str, Any]) -> str | None:
        self.has_begun = True
        try:
            broadcast = self._broadcaster.broadcast
            given = to_builtins(
                dict(envelope)
            )  # a copy of its own: other broadcasters get the same envelope
            if iscoroutinefunction(broadcast):
                pending = broadcast(channel, given)
            else:
                self._thread = self._caller.call(lambda: broadcast(channel, given))
                pending, error = await asyncio.wrap_future(self._thread)
                if error is not None:
                    return error
            if isawaitable(pending):
                await _Guest(pending, self._clock, self._report_blocking, self._is_given_up)
        except SystemExit as error:  # it would end the event loop
            return describe(error)
        return None

    def _is_given_up(self) -> bool:
        """Whether its time to clean up is over, so that a cancellation ends it."""
        return self.is_late or self._times_abandoned > 1

    def _abandon(self, task: "asyncio.Task[str | None]") -> None:
        self._times_abandoned += 1
        task.cancel()
        task.add_done_callback(_why)  # asyncio warns of exceptions that nobody retrieves
        if self._thread is not None:
            self._thread.add_done_callback(_close_unawaited)

    async def _end_with_the_loop(self, task: "asyncio.Task[str | None]") -> None:
        """Cancel twice: the broadcaster may handle the first one, not the second."""
        for _ in range(2):
            if not task.done():
                self._abandon(task)
                await asyncio.wait({task}, timeout=SECONDS_TO_CLEAN_UP)


class _Guest:
    """Awaits a broadcaster's coroutine step by step: reports a step that blocks the loop, and
    closes a coroutine that ignores its cancellation. Cancellations from inside, as by a timeout of
    its own, pass.
    """

    def __init__(
        self,
        awaitable: Awaitable[Any],
        clock: Clock,
        report_blocking: Callable[[float], None],
        is_given_up: Callable[[], bool],
    ) -> None:
        self._awaitable = awaitable
        self._clock = clock
        self._report_blocking = report_blocking
        self._is_given_up = is_given_up

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaitable.__await__()
        cancelled: asyncio.CancelledError | None = None
        try:
            while True:
                ended, awaited = self._step(steps, cancelled)
                if ended:
                    return
                try:
                    yield awaited
                    cancelled = None
                except asyncio.CancelledError as error:
                    if self._is_given_up():
                        raise
                    cancelled = error
        finally:
            steps.close()

    def _step(
        self, steps: Generator[Any, Any, Any], cancelled: asyncio.CancelledError | None
    ) -> tuple[bool, Any]:
        began = self._clock.monotonic()
        try:
            return False, next(steps) if cancelled is None else steps.throw(cancelled)
        except StopIteration:
            return True, None
        finally:
            took = self._clock.monotonic() - began
            if took > BLOCKING_SECONDS:
                self._report_blocking(took)


def _close_unawaited(thread: "ThreadFuture[Returned]") -> None:
    if iscoroutine(thread.result().value):
        thread.result().value.close()


def _why(task: "asyncio.Task[str | None]") -> str | None:
    if task.cancelled():
        return "CancelledError"
    error = task.exception()
    return task.result() if error is None else describe(error)
