"""The journal of a session as an attempt fills it: what happened, in order, until a transaction
stores it. Nothing is sent to clients before it is stored, but for streamed text: see ``live_text``.

One occurrence is one entry. Programs read its payload; what people read of it, a session message,
goes along in the same payload.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.events import AgentEvent
from stepwell.journal.config import ProjectionConfig
from stepwell.journal.entry import Entry
from stepwell.journal.envelope import (
    EnvelopeType,
    StatusPayload,
    StreamChunkPayload,
    timestamp,
)
from stepwell.journal.projector import Projector
from stepwell.journal.status import BroadcastStatus
from stepwell.sessions.attempt.live_text import LiveText
from stepwell.sessions.attempt.open_responses import OpenResponses
from stepwell.sessions.ports import NewEntry, Transaction
from stepwell.sessions.records import (
    EventType,
    Execution,
    Session,
    SessionMessage,
    StoredEntry,
)


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
    """Something that happened, not stored yet: for programs, for people, or for both."""

    at: datetime
    execution_id: str | None
    type: str = ""
    payload: Mapping[str, Any] | None = None
    """What programs read; None if only people do."""
    note: Note | None = None
    is_held: bool = False
    """Whether it was held back for the transaction that stores its step."""

    @classmethod
    def of_note(cls, message: SessionMessage, type: EventType) -> "Occurrence":
        """Something that only people read of."""
        return cls(
            at=message.created_at,
            execution_id=message.agent_execution_id,
            note=Note(message, type),
        )


async def append(
    tx: Transaction, session: Session, occurrences: Sequence[Occurrence]
) -> Sequence[StoredEntry]:
    """Store these of a locked session, the messages as well as the entries.

    A message that is there already, because a step runs again, is left out together with what is
    for people only. So this may be repeated with occurrences of that kind.
    """
    messages = [it.note.message for it in occurrences if it.note is not None]
    added = {message.id: message for message in await tx.add_messages(session, messages)}
    entries = [_entry(it, added) for it in occurrences]
    return await tx.append_entries(session, [entry for entry in entries if entry is not None])


def _entry(occurrence: Occurrence, added: Mapping[str, SessionMessage]) -> NewEntry | None:
    payload, note = occurrence.payload, occurrence.note
    message = None if note is None else added.get(note.message.id)
    if note is None or message is None:
        if payload is None:
            return None
        return NewEntry(
            type=occurrence.type,
            payload=payload,
            created_at=occurrence.at,
            execution_id=occurrence.execution_id,
        )
    shown = _message_view(message, note.type)
    return NewEntry(
        type=str(note.type) if payload is None else occurrence.type,
        payload=shown if payload is None else {**payload, **shown},
        created_at=message.created_at if payload is None else occurrence.at,
        execution_id=occurrence.execution_id,
    )


_NOT_SHOWN = ("fingerprint",)
"""Of a message's metadata: by which intake recognises a send that is repeated."""


def _message_view(message: SessionMessage, type: EventType) -> dict[str, Any]:
    return {
        "message_id": message.id,
        "event_type": str(type),
        "role": str(message.role),
        "content": message.content,
        "metadata": {k: v for k, v in message.metadata.items() if k not in _NOT_SHOWN},
        "agent_execution_id": message.agent_execution_id,
        "created_at": _exact(message.created_at),
    }


_WITH_ATTEMPT = (EnvelopeType.STEP_STARTED, EnvelopeType.STREAM_CHUNK)
"""Entries that say which attempt they are of: text that streams belongs to one."""
_OF_STATUS = (
    EventType.EXECUTION_STARTED,
    EventType.EXECUTION_PAUSED,
    EventType.EXECUTION_COMPLETED,
    EventType.EXECUTION_FAILED,
    EventType.EXECUTION_CANCELLED,
)
"""Notes about what the newest status of the execution says to programs."""


class _Item(Struct, frozen=True):
    entry: Entry | None
    note: Note | None = None


class JournalBuffer:
    """What happened in an attempt and no transaction has stored yet: a list, in order.

    From the end of a step on, everything is held back for the transaction that stores the step:
    clients never hear of a step that could still be lost. No setting of a transport applies here.
    """

    def __init__(
        self,
        execution: Execution,
        agent_id: str,
        config: ProjectionConfig,
        *,
        told_status: str | None,
        clock: Clock,
        live_text: LiveText,
    ) -> None:
        self.news = asyncio.Event()
        """Set while there is something to take."""
        self.told_status = told_status
        """The status of the execution that clients heard last, also from an earlier attempt."""
        self._execution = execution
        self._agent_id = agent_id
        self._clock = clock
        self._tracks_status = config.auto_status_tracking
        self._projector = Projector(execution.id, config)
        self._projector.expect_beginnings()
        self._items: list[_Item] = []
        self._with_row = {execution.id}
        self._early: list[Entry] = []
        """Entries of subagents that have no row yet, to which a stored entry refers."""
        self._held_from: int | None = None
        """Where in the list the held part begins."""
        self._end_at: int | None = None
        """Where the end of the run begins: notes that still come go before it."""
        self._responses = OpenResponses(execution, live_text)

    # What is added

    def add_event(self, event: AgentEvent, note: Note | None) -> None:
        """Add what an event of the run comes to; the note belongs to its last entry."""
        before = len(self._items)
        self._add(self._projector.entries(event))
        if note is not None:
            last = len(self._items) - 1
            self._attach(last if last >= before else None, note)

    def add_note(self, note: Note) -> None:
        """Add what people read; if it is about the newest status, to the entry of that."""
        self._attach(self._status_without_note() if note.type in _OF_STATUS else None, note)

    def add_execution(self, execution_id: str) -> None:
        """Let entries of a subagent's execution through: the next transaction adds its row."""
        self._with_row.add(execution_id)
        early, self._early = self._early, []
        self._add(early)

    def add_metadata(self, message_id: str, metadata: Mapping[str, Any]) -> None:
        """Add to the metadata of a message that was not taken yet; others are not changed."""
        for place, item in enumerate(self._items):
            note = item.note
            if metadata and note is not None and note.message.id == message_id:
                message = replace(note.message, metadata={**note.message.metadata, **metadata})
                self._items[place] = replace(item, note=Note(message, note.type))

    def begin(self) -> None:
        """Add that the execution is being processed; clients who know that do not hear it again."""
        if self._tracks_status:
            status, at = BroadcastStatus.PROCESSING, self._clock.now()
            self._add(self._projector.change_status(status, at))

    def hold(self, *, ends: bool) -> None:
        """Keep what comes from now on for the transaction that stores the step. Where the run
        ``ends``, notes that still come go before its end."""
        if self._held_from is None:
            self._held_from = len(self._items)
        if ends and self._end_at is None:
            self._end_at = len(self._items)

    def drop_held(self) -> None:
        """Forget what was held back: it did not come true."""
        if self._held_from is not None:
            del self._items[self._held_from :]
        self._held_from = self._end_at = None

    def _add(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if not entry.is_stored:
                continue
            if entry.execution_id not in self._with_row:
                self._early.append(entry)
                continue
            kept: Entry | None = entry
            if isinstance(entry.payload, StreamChunkPayload):
                kept = self._responses.add(entry, entry.payload)
            if kept is not None:
                self._items.append(_Item(kept))
                self.news.set()

    def _attach(self, place: int | None, note: Note) -> None:
        if place is not None:
            self._items[place] = _Item(self._items[place].entry, note)
        elif self._end_at is None:
            self._items.append(_Item(None, note))
        else:
            self._items.insert(self._end_at, _Item(None, note))
            self._end_at += 1
        self.news.set()

    def _status_without_note(self) -> int | None:
        """Where the newest status of the execution itself stands, if it has no note."""
        for place in range(len(self._items) - 1, -1, -1):
            entry, note = self._items[place].entry, self._items[place].note
            if entry is None or entry.execution_id != self._execution.id:
                continue
            is_status = isinstance(entry.payload, StatusPayload)
            return place if is_status and note is None else None
        return None

    # What is taken

    def take(self, *, held: bool = False) -> list[Occurrence]:
        """Take all that happened so far; what is held back only if it is asked for."""
        held_from = self._held_from
        if held:
            self._held_from = self._end_at = None
        end = len(self._items) if self._held_from is None else self._held_from
        taken, self._items = self._items[:end], self._items[end:]
        if self._held_from is not None:
            self._held_from = 0
        if self._end_at is not None:
            self._end_at -= end
        self.news.clear()
        first = len(taken) if held_from is None else held_from
        found = [self._occurrence(item) for item in taken[:first]]
        late = [self._occurrence(item) for item in taken[first:]]
        marked = [None if it is None else replace(it, is_held=True) for it in late]
        return [it for it in [*found, *marked] if it is not None]

    def _occurrence(self, item: _Item) -> Occurrence | None:
        entry, note = item.entry, item.note
        payload = None if entry is None else self._payload(entry)
        if entry is None or payload is None:
            return None if note is None else Occurrence.of_note(*note)
        return Occurrence(
            at=entry.at,
            execution_id=entry.execution_id,
            type=entry.type.value,
            payload=payload,
            note=note,
        )

    def _payload(self, entry: Entry) -> Mapping[str, Any] | None:
        payload: dict[str, Any] = to_builtins(entry.payload, str_keys=True)
        if isinstance(entry.payload, StatusPayload) and entry.execution_id == self._execution.id:
            return self._status(payload)
        if entry.type in _WITH_ATTEMPT:
            payload["attempt"] = self._execution.attempt
        return payload

    def _status(self, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The status as it follows what clients heard last; None if they know it already: each
        attempt has a projector of its own, which begins as idle."""
        status, before = payload["status"], self.told_status
        if status == before and not payload["reason"]:
            return None
        self.told_status = status
        changes: dict[str, Any] = {} if before is None else {"previous_status": before}
        if not payload["agent_id"]:  # by hand, before the run told whose it is
            changes |= {"agent_id": self._agent_id, "step_count": self._execution.step_count}
        return {**payload, **changes}


def _exact(at: datetime) -> str:
    """UTC with microseconds, by which messages are ordered."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
