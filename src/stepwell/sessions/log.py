"""The event log of a session as a runner fills it: what a run told, put in order, until a
transaction takes it along. Nothing is told before it is logged, but for streamed text: see
``live_text``.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.events import AgentEvent
from stepwell.ids import IdFactory
from stepwell.journal.config import ProjectionConfig
from stepwell.journal.entry import Entry, payload_data
from stepwell.journal.envelope import EnvelopeType, StatusPayload, StreamChunkPayload, timestamp
from stepwell.journal.projector import Projector
from stepwell.journal.status import BroadcastStatus
from stepwell.sessions.attempt.live_text import LiveText
from stepwell.sessions.attempt.open_responses import OpenResponses
from stepwell.sessions.ids import derived_id, nearby_id
from stepwell.sessions.ports import NewEvent, Transaction
from stepwell.sessions.records import EventType, Execution, LoggedEvent, Session, SessionMessage


def envelope_of(event: LoggedEvent) -> dict[str, Any]:
    """The envelope that clients see."""
    return {
        "id": event.id,
        "seq": event.seq,
        "type": event.type,
        "session_id": event.session_id,
        "execution_id": event.execution_id,
        "timestamp": timestamp(event.created_at),
        "payload": dict(event.payload),
    }


_NOT_TOLD = ("fingerprint",)
"""Of a message's metadata: by which intake knows a send that is repeated."""


def message_event(message: SessionMessage, type: EventType) -> NewEvent:
    """What is logged with a session message. Its id follows from the message's."""
    return NewEvent(
        id=nearby_id(message.id, "event"),
        type=type,
        execution_id=message.agent_execution_id,
        created_at=message.created_at,
        payload={
            "message_id": message.id,
            "event_type": str(type),
            "role": str(message.role),
            "content": message.content,
            "metadata": {k: v for k, v in message.metadata.items() if k not in _NOT_TOLD},
            "agent_execution_id": message.agent_execution_id,
            "created_at": _exact(message.created_at),
        },
    )


_WITH_ATTEMPT = (EnvelopeType.STEP_STARTED, EnvelopeType.STREAM_CHUNK)
"""Entries that say which attempt they are of: text that streams belongs to one."""


class Note(NamedTuple):
    """A message for people, and under which type it is logged."""

    message: SessionMessage
    type: EventType


class JournalBatch(Struct, frozen=True):
    """Messages and events in the order in which they happened."""

    messages: Sequence[SessionMessage] = ()
    events: Sequence[NewEvent] = ()


async def append(tx: Transaction, session: Session, batch: JournalBatch) -> None:
    """Log these of a locked session; each message with the time that the store gave it."""
    events = batch.events
    if batch.messages:
        stored = {message.id: message for message in await tx.add_messages(session, batch.messages)}
        events = [_timed(event, stored) for event in events]
    if events:
        await tx.append_events(session, events)


def _timed(event: NewEvent, stored: Mapping[str, SessionMessage]) -> NewEvent:
    message = stored.get(event.payload.get("message_id", ""))
    if message is None or message.created_at == event.created_at:
        return event
    payload = {**event.payload, "created_at": _exact(message.created_at)}
    return replace(event, payload=payload, created_at=message.created_at)


class LogBuffer:
    """What a run told and no transaction has logged yet: a list, in the order in which it happened.

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
        new_id: IdFactory,
        live_text: LiveText,
    ) -> None:
        self.news = asyncio.Event()
        """Set while there is something to take."""
        self.told_status = told_status
        """The status of the execution that clients heard last, also from an earlier attempt."""
        self._execution = execution
        self._agent_id = agent_id
        self._clock = clock
        self._new_id = new_id
        self._tells_statuses = config.auto_status_tracking
        self._projector = Projector(execution.id, config)
        self._projector.expect_beginnings()
        self._items: list[Entry | Note] = []
        self._with_row = {execution.id}
        self._early: list[Entry] = []
        """Entries of subagents that have no row yet, to which a stored entry refers."""
        self._known: set[str] = set()
        self._held_from: int | None = None
        """Where in the list the held part begins."""
        self._notes_at: int | None = None
        """Where the next note goes while the run ends: before its last status."""
        self._responses = OpenResponses(execution, live_text)

    # What is told

    def hear(self, event: AgentEvent) -> None:
        """Add the entries of an event of the run."""
        self._add(self._projector.entries(event))

    def say(self, message: SessionMessage, type: EventType) -> None:
        """Add a message for people; one that was added before, under the same id, is ignored."""
        if message.id in self._known:
            return
        self._known.add(message.id)
        if self._notes_at is None:
            self._items.append(Note(message, type))
        else:
            self._items.insert(self._notes_at, Note(message, type))
            self._notes_at += 1
        self.news.set()

    def add_execution(self, execution_id: str) -> None:
        """Let entries of a subagent's execution through: the next transaction adds its row."""
        self._with_row.add(execution_id)
        early, self._early = self._early, []
        self._add(early)

    def add_to(self, message_id: str, metadata: Mapping[str, Any]) -> None:
        """Add metadata to a message that nobody has taken yet; others are not changed."""
        for place, it in enumerate(self._items):
            if metadata and isinstance(it, Note) and it.message.id == message_id:
                message = replace(it.message, metadata={**it.message.metadata, **metadata})
                self._items[place] = Note(message, it.type)

    def begin(self) -> None:
        """Add that the execution is being processed; clients who know that are not told again."""
        if self._tells_statuses:
            status, at = BroadcastStatus.PROCESSING, self._clock.now()
            self._add(self._projector.change_status(status, at))

    def hold(self, *, ends: bool) -> None:
        """Keep what comes from now on for the transaction that stores the step. Where the run
        ``ends``, notes that still come go before its last status."""
        if self._held_from is None:
            self._held_from = len(self._items)
        if ends and self._notes_at is None:
            self._notes_at = len(self._items)

    def drop_held(self) -> None:
        """Forget what was held back: it did not come true."""
        if self._held_from is not None:
            del self._items[self._held_from :]
        self._held_from = self._notes_at = None

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
                self._items.append(kept)
                self.news.set()

    # What is taken

    def take(self, *, held: bool = False) -> JournalBatch:
        """Take all that was told so far; what is held back only if it is asked for."""
        if held:
            self._held_from = self._notes_at = None
        end = len(self._items) if self._held_from is None else self._held_from
        taken, self._items = self._items[:end], self._items[end:]
        if self._held_from is not None:
            self._held_from = 0
        if self._notes_at is not None:
            self._notes_at -= end
        self.news.clear()
        events = [self._event(item) for item in taken]
        return JournalBatch(
            [item.message for item in taken if isinstance(item, Note)],
            [event for event in events if event is not None],
        )

    def settled(self) -> None:
        """Do nothing: what is told is in the list at once."""

    def _event(self, item: Entry | Note) -> NewEvent | None:
        if isinstance(item, Note):
            return message_event(item.message, item.type)
        payload: Mapping[str, Any] | None = payload_data(item.payload)
        is_root, id = item.execution_id == self._execution.id, None
        if isinstance(item.payload, StatusPayload):
            status = item.payload.status
            if is_root:
                payload = self._status(payload)
            elif status.is_terminal:
                # A subagent's last one: whoever takes over tells it too, and it is told once.
                id = status_event_id(item.execution_id, status)
        if payload is None:
            return None
        if item.type in _WITH_ATTEMPT:
            payload = {**payload, "attempt": self._execution.attempt}
        return NewEvent(
            id=id or self._new_id(),
            type=item.type.value,
            payload=payload,
            created_at=item.at,
            execution_id=item.execution_id,
        )

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


def status_event_id(execution_id: str, status: str, attempt: int = 0) -> str:
    """The same for the same end of an execution; subagents have no attempts of their own."""
    return derived_id(execution_id, "status", status, attempt)


def _exact(at: datetime) -> str:
    """UTC with microseconds, by which messages are ordered."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
