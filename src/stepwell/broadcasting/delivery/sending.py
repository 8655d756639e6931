"""One call into a broadcaster, which is foreign code: whatever it does ends as a text or nothing.

An async one shares the event loop with the run, a sync one is called in a thread.
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
from stepwell.errors import described

BLOCKING_SECONDS = 0.1
"""An async broadcaster that holds the event loop longer in one go is reported."""

SECONDS_TO_CLEAN_UP = 0.5
"""What a cancelled call has to end by itself."""


class Sending:
    """Sends one envelope, once. It knows whether the broadcaster still hangs in the call."""

    def __init__(
        self,
        broadcaster: CanBroadcastAgentEvents,
        caller: CallingThread,
        clock: Clock,
        held_up: Callable[[float], None],
    ) -> None:
        self._broadcaster = broadcaster
        self._caller = caller
        self._clock = clock
        self._held_up = held_up
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
        """Why it was not sent, or None if it was. After so many seconds the call is abandoned."""
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
        """Wait until the broadcaster returns; after so many seconds, or after its time, it is late.

        The call may have begun on an earlier event loop.
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
                waiting.cancel()  # else the thread would call this event loop after its end

    async def _call(self, channel: str, envelope: Mapping[str, Any]) -> str | None:
        self.has_begun = True
        try:
            broadcast = self._broadcaster.broadcast
            given = to_builtins(dict(envelope))  # its own copy: others are given the same one
            if iscoroutinefunction(broadcast):
                pending = broadcast(channel, given)
            else:
                self._thread = self._caller.call(lambda: broadcast(channel, given))
                pending, error = await asyncio.wrap_future(self._thread)
                if error is not None:
                    return error
            if isawaitable(pending):
                await _Guest(pending, self._clock, self._held_up, self._is_given_up)
        except SystemExit as error:  # it would leave the task and end the event loop
            return described(error)
        return None

    def _is_given_up(self) -> bool:
        """Whether it had its time to clean up: whoever cancels it now does not ask."""
        return self.is_late or self._times_abandoned > 1

    def _abandon(self, task: "asyncio.Task[str | None]") -> None:
        self._times_abandoned += 1
        task.cancel()
        task.add_done_callback(_why)  # asyncio complains of exceptions that nobody asked for
        if self._thread is not None:
            self._thread.add_done_callback(_close_unawaited)

    async def _end_with_the_loop(self, task: "asyncio.Task[str | None]") -> None:
        """The first cancellation asks the broadcaster, the second does not."""
        for _ in range(2):
            if not task.done():
                self._abandon(task)
                await asyncio.wait({task}, timeout=SECONDS_TO_CLEAN_UP)


class _Guest:
    """Awaits a broadcaster's coroutine step by step: a step that blocks the loop is noticed, and
    a coroutine that lives on after it was given up is closed. Cancellations of its own, as of a
    timeout inside it, are its own business.
    """

    def __init__(
        self,
        awaitable: Awaitable[Any],
        clock: Clock,
        held_up: Callable[[float], None],
        is_given_up: Callable[[], bool],
    ) -> None:
        self._awaitable = awaitable
        self._clock = clock
        self._held_up = held_up
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
                self._held_up(took)


def _close_unawaited(thread: "ThreadFuture[Returned]") -> None:
    if iscoroutine(thread.result().value):
        thread.result().value.close()


def _why(task: "asyncio.Task[str | None]") -> str | None:
    if task.cancelled():
        return "CancelledError"
    error = task.exception()
    return task.result() if error is None else described(error)
