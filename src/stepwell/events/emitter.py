"""Delivers the events of one run. Builds no event object while nobody listens."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from inspect import isawaitable, iscoroutine
from typing import Concatenate, ParamSpec

from stepwell.clock import Clock
from stepwell.events.bus import Event, EventBus, Listener, Subscription
from stepwell.events.types import AgentEvent, EventSource
from stepwell.foreign import as_exception, contained

P = ParamSpec("P")
Tap = Callable[[AgentEvent], None]

logger = logging.getLogger("stepwell.events")

SLOW_LISTENER_SECONDS = 0.1
"""A sync listener that takes longer is reported: it holds up the run."""

DRAIN_SECONDS = 0.5
"""How long the end of a run waits for async listeners; later ones go on in the background."""


class Emitter:
    """Binds the ids of a run once, then builds and delivers its events."""

    def __init__(
        self,
        bus: EventBus,
        source: EventSource,
        clock: Clock,
        tap: Tap | None = None,
    ) -> None:
        self.bus = bus
        self.source = source
        self._clock = self.clock = clock
        self.tap = tap
        """Hears this run alone, and its subagents' runs. One that has ``event_types`` hears only
        these classes of events."""
        self._taps: tuple[Subscription, ...] = ()
        if tap is not None:
            wanted: Sequence[type[AgentEvent]] = getattr(tap, "event_types", (AgentEvent,))
            self._taps = tuple([Subscription(event_type, tap) for event_type in wanted])
        self._mailboxes: dict[int, _Mailbox] = {}
        self._listeners: dict[object, tuple[Listener, ...]] = {}
        """By class of event; found once for as long as the subscriptions are the same."""
        self._listeners_of: tuple[Subscription, ...] = ()

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens; lets a caller skip costly payloads."""
        return bool(self.bus.subscriptions or self._taps)

    def hears(self, event_type: type[AgentEvent]) -> bool:
        """Whether anybody listens to that class of events."""
        return bool(self._find_listeners(event_type))

    def listen(self, event_type: type[Event], listener: Callable[[Event], None]) -> None:
        """Tell this listener as well, of this run alone; a subagent tells its own run."""
        self._taps = (*self._taps, Subscription(event_type, listener))
        self._listeners = {}

    def emit(
        self,
        event_type: Callable[Concatenate[EventSource, datetime, P], AgentEvent],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Tell the listeners, if there are any."""
        listeners = self._find_listeners(event_type)
        if not listeners:
            return
        event = event_type(self.source, self._clock.now(), *args, **kwargs)
        for listener in listeners:
            self._deliver(event, listener)

    def _find_listeners(self, event_type: object) -> tuple[Listener, ...]:
        if self.bus.subscriptions is not self._listeners_of:
            self._listeners, self._listeners_of = {}, self.bus.subscriptions
        found = self._listeners.get(event_type)
        if found is None:
            subscriptions = (*self.bus.subscriptions, *self._taps)
            wanted = [s for s in subscriptions if _is_kind_of(event_type, s.event_type)]
            found = self._listeners[event_type] = tuple([s.listener for s in wanted])
        return found

    async def drain(self) -> None:
        """Let async listeners catch up for a moment; those still busy go on by themselves."""
        if not self._mailboxes:
            return
        boxes, self._mailboxes = self._mailboxes, {}
        _, late = await asyncio.wait([box.close() for box in boxes.values()], timeout=DRAIN_SECONDS)
        for box in boxes.values():
            if box.task in late:
                self.bus.late.add(box.task)
                box.task.add_done_callback(self.bus.late.discard)
                logger.warning(
                    "listener %r is behind by %d events; it goes on after the run, as long as the "
                    "event loop lives",
                    box.listener,
                    box.waiting,
                )

    def close(self) -> None:
        """Let the mailboxes end once they have delivered; for runs that were left in the middle."""
        for box in self._mailboxes.values():
            box.close()
        self._mailboxes = {}

    def _deliver(self, event: AgentEvent, listener: Listener) -> None:
        started = self._clock.monotonic()
        try:
            with contained():
                pending = listener(event)
        except Exception:  # foreign code: its faults stay outside the run
            logger.exception("listener %r raised at %s", listener, type(event).__name__)
            return
        if pending is not None and isawaitable(pending):
            self._mailbox(listener).put(pending)
        elif self._clock.monotonic() - started > SLOW_LISTENER_SECONDS:
            logger.warning(
                "listener %r held up the run for %.0f ms at %s; make it async or quicker",
                listener,
                (self._clock.monotonic() - started) * 1000,
                type(event).__name__,
            )

    def _mailbox(self, listener: Listener) -> "_Mailbox":
        box = self._mailboxes.get(id(listener))
        if box is None:
            box = self._mailboxes[id(listener)] = _Mailbox(listener)
        return box


def _is_kind_of(event_type: object, wanted: type[AgentEvent]) -> bool:
    """Of what only makes events, anything may come."""
    return issubclass(event_type, wanted) if isinstance(event_type, type) else wanted is AgentEvent


class _Mailbox:
    """Awaits what one async listener returned, one after the other, beside the run."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._queue: asyncio.Queue[Awaitable[None] | None] = asyncio.Queue()
        self.task = asyncio.get_running_loop().create_task(self._work())
        self.task.add_done_callback(self._drop_what_is_left)

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def put(self, pending: Awaitable[None]) -> None:
        self._queue.put_nowait(pending)

    def close(self) -> "asyncio.Task[None]":
        self._queue.put_nowait(None)
        return self.task

    async def _work(self) -> None:
        while (pending := await self._queue.get()) is not None:
            try:
                await pending
            except BaseException as error:  # foreign code, as above
                if self.task.cancelling():
                    raise
                logger.error("listener %r raised", self.listener, exc_info=as_exception(error))

    def _drop_what_is_left(self, _: "asyncio.Task[None]") -> None:
        """The event loop ends before the listener did; its coroutines can't be awaited any more."""
        while not self._queue.empty():
            pending = self._queue.get_nowait()
            if iscoroutine(pending):
                pending.close()
