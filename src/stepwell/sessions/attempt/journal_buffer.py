"""What happened in an attempt and no transaction has stored yet, in order. Clients see nothing
before it is stored, but for streamed text: see ``live_text``. Written by the events of the run and
by its boundaries."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.events import (
    AgentEvent,
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    AgentStepStarted,
    ToolCallStarted,
)
from stepwell.ids import RunIds
from stepwell.journal.config import ProjectionConfig
from stepwell.journal.entry import Entry
from stepwell.journal.envelope import EnvelopeType, StatusPayload, StreamChunkPayload
from stepwell.journal.projector import Projector
from stepwell.journal.status import BroadcastStatus
from stepwell.sessions.attempt.live_text import LiveText
from stepwell.sessions.attempt.open_responses import OpenResponses
from stepwell.sessions.first_state import agent_id_of
from stepwell.sessions.ledger.open_step import OpenStep
from stepwell.sessions.narration import Narrator
from stepwell.sessions.occurrence import Note, Occurrence
from stepwell.sessions.records import PUBLISHED_STATUS, EventType, Execution

_WITH_ATTEMPT = (EnvelopeType.AGENT_STEP_STARTED, EnvelopeType.AGENT_STREAM_CHUNK)
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
        config: ProjectionConfig,
        *,
        ids: RunIds,
        narrator: Narrator,
        open_step: OpenStep,
        clock: Clock,
        live_text: LiveText,
    ) -> None:
        self.news = asyncio.Event()
        """Set while there is something to take."""
        self.waiting_since = 0.0
        """When it was set, by the clock of the event loop."""
        self.published_status: str | None = execution.metadata.get(PUBLISHED_STATUS)
        """The status of the execution that clients heard last, also from an earlier attempt."""
        self._execution = execution
        self._ids, self._narrator, self._open_step = ids, narrator, open_step
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

        self.event_types = self._projector.event_types
        """What it wants to hear as the tap of a run."""

    # What is added

    def hear(self, event: AgentEvent) -> None:
        """Add what an event of the run or of its subagents comes to; the tap of the run."""
        note = None
        if event.execution_id == self._execution.id:
            match event:
                case AgentStepStarted():
                    self._ids.step = event.step_number
                case AgentStepCompleted():
                    self._hold(ends=False)
                case AgentFailed() | AgentFinished():
                    self._hold(ends=True)
                case _:
                    pass
            note = self._note_of(event)
        entries = self._projector.entries(event)
        before = len(self._items)
        if entries:
            self._add(entries)
        if note is not None:
            last = len(self._items) - 1
            self._attach(last if last >= before else None, note)

    __call__ = hear

    def _note_of(self, event: AgentEvent) -> Note | None:
        if type(event) is ToolCallStarted and not self._open_step.has_call(event.call_id):
            return None  # it has its result and does not run
        return self._narrator.of_event(event)

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
            if note is not None and note.message.id == message_id:
                message = replace(note.message, metadata={**note.message.metadata, **metadata})
                self._items[place] = replace(item, note=Note(message, note.type))

    def begin(self) -> None:
        """Add that the execution is being processed; clients who know that do not hear it again."""
        if self._tracks_status:
            status, at = BroadcastStatus.PROCESSING, self._clock.now()
            self._add(self._projector.change_status(status, at))

    def _hold(self, *, ends: bool) -> None:
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
                self.wake_flush()

    def _attach(self, place: int | None, note: Note) -> None:
        if place is not None:
            self._items[place] = _Item(self._items[place].entry, note)
        elif self._end_at is None:
            self._items.append(_Item(None, note))
        else:
            self._items.insert(self._end_at, _Item(None, note))
            self._end_at += 1
        self.wake_flush()

    def _status_without_note(self) -> int | None:
        """Where the newest status of the execution itself stands, if it has no note."""
        for place in range(len(self._items) - 1, -1, -1):
            entry, note = self._items[place].entry, self._items[place].note
            if entry is None or entry.execution_id != self._execution.id:
                continue
            is_status = isinstance(entry.payload, StatusPayload)
            return place if is_status and note is None else None
        return None

    def wake_flush(self) -> None:
        """Say that there is something to store, also if hooks take their time."""
        if not self.news.is_set():
            self.waiting_since = asyncio.get_running_loop().time()
            self.news.set()

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
        found = (self._occurrence(item, place >= first) for place, item in enumerate(taken))
        return [it for it in found if it is not None]

    def _occurrence(self, item: _Item, is_held: bool) -> Occurrence | None:
        entry, note = item.entry, item.note
        payload = None if entry is None else self._payload(entry)
        if entry is None or payload is None:
            return None if note is None else replace(Occurrence.of_note(*note), is_held=is_held)
        return Occurrence(
            at=entry.at,
            execution_id=entry.execution_id,
            type=entry.type.value,
            payload=payload,
            note=note,
            is_held=is_held,
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
        status, before = payload["status"], self.published_status
        if status == before and not payload["reason"]:
            return None
        self.published_status = status
        changes: dict[str, Any] = {} if before is None else {"previous_status": before}
        if not payload["agent_id"]:  # by hand, before the run emitted its first event
            changes |= {
                "agent_id": agent_id_of(self._execution),
                "step_count": self._execution.step_count,
            }
        return {**payload, **changes}
