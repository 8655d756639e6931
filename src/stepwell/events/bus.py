"""Who listens to which events. Registration only; the emitter of a run delivers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.events.types import AgentEvent

Event = TypeVar("Event", bound=AgentEvent)
Listener = Callable[[Any], Awaitable[None] | None]
Unsubscribe = Callable[[], None]


class Subscription(Struct, frozen=True, eq=False):
    """A listener and the class of events it wants."""

    event_type: type[AgentEvent]
    listener: Listener


class EventBus:
    """Listeners of one agent, or of several that share the bus.

    A listener may be sync or async. One that raises is reported by the ``stepwell.events``
    logger and never harms a run. Async listeners run beside the run, in order; a sync one runs
    in place, so it should be quick (one that takes over 100 ms is reported).

    >>> bus = EventBus()
    >>> stop_listening = bus.wiretap(print)
    >>> stop_listening()
    """

    def __init__(self) -> None:
        self.subscriptions: tuple[Subscription, ...] = ()
        self.late: set[asyncio.Task[None]] = set()
        """Async listeners still at work on events of runs that are over."""

    def on_event(
        self, event_type: type[Event], listener: Callable[[Event], Awaitable[None] | None]
    ) -> Unsubscribe:
        """Call the listener for events of that class and its subclasses."""
        if not isinstance(event_type, type) or not issubclass(event_type, AgentEvent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                "on_event() wants an event class of stepwell.events, such as AgentStepCompleted; "
                f"got {event_type!r}"
            )
        if not callable(listener):
            raise ConfigurationError(f"the listener for {event_type.__name__} is not callable")
        subscription = Subscription(event_type, listener)
        self.subscriptions = (*self.subscriptions, subscription)
        return lambda: self._remove(subscription)

    def wiretap(self, listener: Callable[[AgentEvent], Awaitable[None] | None]) -> Unsubscribe:
        """Call the listener for every event."""
        return self.on_event(AgentEvent, listener)

    async def settle(self, seconds: float) -> None:
        """Wait that long for the listeners that are late; for programs that end after a run."""
        if self.late:
            await asyncio.wait(tuple(self.late), timeout=seconds)

    def _remove(self, subscription: Subscription) -> None:
        self.subscriptions = tuple(s for s in self.subscriptions if s is not subscription)
