"""What happens in a session and is not stored yet. One occurrence becomes one entry of the journal:
programs read its payload, and what people read of it, a session message, goes along in it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from stepwell.journal.envelope import timestamp
from stepwell.sessions.records import EventType, SessionMessage, StoredEntry


def envelope_of(entry: StoredEntry, id: str | None = None) -> dict[str, Any]:
    """The envelope that clients see."""
    return {
        "id": id or entry.id,
        "seq": entry.seq,
        "type": entry.type,
        "session_id": entry.session_id,
        "execution_id": entry.execution_id,
        "timestamp": timestamp(entry.created_at),
        "payload": dict(entry.payload),
    }


class Note(NamedTuple):
    """What people read of an occurrence: a session message, and what it is about."""

    message: SessionMessage
    type: EventType


class Occurrence(Struct, frozen=True, kw_only=True):
    """Something that happened: for programs, for people, or for both."""

    at: datetime
    execution_id: str | None = None
    type: str = ""
    payload: Mapping[str, Any] | None = None
    """What programs read; None if only people do."""
    note: Note | None = None
    is_held: bool = False
    """Whether it was held back for the transaction that stores its step."""

    @classmethod
    def of_note(cls, message: SessionMessage, type: EventType) -> "Occurrence":
        """Return one that only people read of."""
        return cls(
            at=message.created_at,
            execution_id=message.agent_execution_id,
            note=Note(message, type),
        )

    def with_message(self, added: Mapping[str, SessionMessage]) -> "Occurrence | None":
        """Return it with its note in the payload, as the message was added; without the note if
        the message was there already. None if nothing is left."""
        payload, note = self.payload, self.note
        message = None if note is None else added.get(note.message.id)
        if note is None or message is None:
            return None if payload is None else self
        view = _message_view(message, note.type)
        if payload is not None:
            return replace(self, payload={**payload, **view})
        return replace(self, type=str(note.type), payload=view, at=message.created_at)


_NOT_SHOWN = "fingerprint"
"""Of a message's metadata: by which intake recognises a send that is repeated."""


def _message_view(message: SessionMessage, type: EventType) -> dict[str, Any]:
    return {
        "message_id": message.id,
        "event_type": str(type),
        "role": str(message.role),
        "content": message.content,
        "metadata": _without_hidden(message.metadata),
        "agent_execution_id": message.agent_execution_id,
        "created_at": _exact(message.created_at),
    }


def _without_hidden(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    if _NOT_SHOWN not in metadata:
        return metadata
    return {name: value for name, value in metadata.items() if name != _NOT_SHOWN}


def _exact(at: datetime) -> str:
    """UTC with microseconds, by which messages are ordered."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
