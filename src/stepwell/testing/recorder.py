"""Keeps the events of runs, for assertions."""

from typing import TypeVar

from stepwell.events import AgentEvent

Event = TypeVar("Event", bound=AgentEvent)


class EventRecorder:
    """A listener that remembers: ``agent.wiretap(recorder)``.

    >>> EventRecorder().names
    []
    """

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []

    def __call__(self, event: AgentEvent) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        """The class names of the events, in order."""
        return [type(event).__name__ for event in self.events]

    def of(self, event_type: type[Event]) -> list[Event]:
        """The events of that class, in order."""
        return [event for event in self.events if isinstance(event, event_type)]
