"""An event as it goes to followers."""

from typing import Self

from stepwell.protocols.client_stream import json_bytes
from stepwell.sessions.log import envelope_of
from stepwell.sessions.records import StoredEntry


class LiveEvent:
    """An event with its envelope as JSON, encoded once for all followers. One with a ``text_id``
    is a piece of text that is being generated, and not in the journal."""

    __slots__ = ("cursor", "envelope", "event", "frame", "is_text")

    def __init__(self, event: StoredEntry, text_id: str | None = None) -> None:
        self.event = event
        self.is_text = text_id is not None
        self.envelope = json_bytes(envelope_of(event, text_id))
        self.cursor = str(event.seq)
        """Where a follower is who has it."""
        self.frame: str | None = None
        """As it goes through a Pusher socket, once somebody needed it so."""

    @property
    def seq(self) -> int:
        """Its number in the log."""
        return self.event.seq

    def at(self, cursor: str) -> Self:
        """Return the same event for a follower who has come to another place by it."""
        made = object.__new__(type(self))
        made.event, made.is_text, made.envelope = self.event, self.is_text, self.envelope
        made.frame, made.cursor = self.frame, cursor
        return made
