"""Events as they go to followers, and the newest ones of a session in memory."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Self

from stepwell.protocols.client_stream import json_bytes
from stepwell.sessions.occurrence import envelope_of
from stepwell.sessions.records import StoredEntry

BATCH_BYTES = 64 * 1024
"""The most that is taken at once, unless a single event is larger."""


class LiveEvent:
    """An event with its envelope as JSON, encoded once for all followers. With a ``text_id`` it is
    a piece of streamed text, which is not in the journal."""

    __slots__ = ("cursor", "envelope", "event", "frame", "is_text")

    def __init__(self, event: StoredEntry, text_id: str | None = None) -> None:
        self.event = event
        self.is_text = text_id is not None
        self.envelope = json_bytes(envelope_of(event, text_id))
        self.cursor = str(event.seq)
        """The cursor of a follower that has it."""
        self.frame: str | None = None
        """The frame for Pusher sockets, once it was needed."""

    @property
    def seq(self) -> int:
        """Its number in the journal."""
        return self.event.seq

    def at(self, cursor: str) -> Self:
        """Return the same event with another cursor."""
        made = object.__new__(type(self))
        made.event, made.is_text, made.envelope = self.event, self.is_text, self.envelope
        made.frame, made.cursor = self.frame, cursor
        return made


class EventTail:
    """The newest events of a session, without gaps, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._events: deque[LiveEvent] = deque()

    def append(self, one: LiveEvent) -> None:
        """Append the next event, and drop the oldest ones where there is no room for them."""
        self._events.append(one)
        self._bytes += len(one.envelope)
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._events.popleft().envelope)

    def clear(self) -> None:
        """Drop all events."""
        self._events.clear()
        self._bytes = 0

    def covers(self, seq: int) -> bool:
        """Whether the event after that number is here, or will be the next one to come."""
        return bool(self._events) and self._events[0].seq <= seq + 1

    def batch_after(self, seq: int) -> Sequence[LiveEvent] | None:
        """Return the next events after a number; None if they are not all here."""
        if not self.covers(seq):
            return None
        return batch_of(islice(self._events, seq + 1 - self._events[0].seq, None))


def batch_of(events: Iterable[LiveEvent]) -> list[LiveEvent]:
    """Return the first of these events, as many as are taken at once."""
    batch: list[LiveEvent] = []
    size = 0
    for one in events:
        size += len(one.envelope)
        if batch and size > BATCH_BYTES:
            break
        batch.append(one)
    return batch
