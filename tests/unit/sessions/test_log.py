"""What happens in a run is put in order, one entry each, and held back where it must be."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from stepwell.broadcasting.config import BroadcastConfig
from stepwell.continuation import AgentStatus, StopReason
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentFinished,
    AgentStepStarted,
    EventSource,
    StreamEventReceived,
)
from stepwell.journal import Entry
from stepwell.journal.envelope import EnvelopeType, StreamChunkPayload
from stepwell.messages import Usage
from stepwell.sessions.attempt.live_text import LiveText
from stepwell.sessions.attempt.open_responses import OpenResponses
from stepwell.sessions.log import JournalBuffer, Note, Occurrence, append, envelope_of
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import (
    EventType,
    Execution,
    MessageRole,
    Session,
    SessionMessage,
    StoredEntry,
)
from stepwell.stores.bus.local_bus import LocalBus
from stepwell.testing import FakeClock
from stepwell.testing.stores_rows import a_session, an_execution

STANDARD = BroadcastConfig.standard()
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCE = EventSource(agent_id="a", parent_agent_id=None, execution_id="e")


def buffer(told_status: str | None = None, config: BroadcastConfig = STANDARD) -> JournalBuffer:
    execution = Execution(
        id="e",
        tenant_id="t",
        session_id="s",
        agent_type="x",
        definition_hash="",
        created_at=AT,
        updated_at=AT,
        step_count=4,
    )
    return JournalBuffer(
        execution,
        "a",
        config,
        told_status=told_status,
        clock=FakeClock(),
        live_text=LiveText(cast("Store", NoStore()), FakeClock()),
    )


class NoStore:
    """A bus, and a database that keeps nothing."""

    def __init__(self) -> None:
        self.bus = LocalBus()

    async def write(self, work: Any, /, *, name: str) -> None:
        pass


def message(text: str) -> SessionMessage:
    return SessionMessage(
        id=f"m-{text}",
        tenant_id="t",
        session_id="s",
        role=MessageRole.INFO,
        content=text,
        created_at=AT + timedelta(microseconds=5),
        agent_execution_id="e",
    )


def told(occurrences: list[Occurrence]) -> list[tuple[str, str | None]]:
    """What programs and people read of each."""
    return [(it.type, None if it.note is None else it.note.message.content) for it in occurrences]


def begun() -> AgentEvent:
    return AgentExecutionStarted(SOURCE, AT, message_count=1, available_tools=(), resumed=False)


def step(number: int) -> AgentEvent:
    return AgentStepStarted(SOURCE, AT, step_number=number, message_count=1, available_tools=())


def chunk(text: str, index: int, *, last: bool = False) -> AgentEvent:
    return StreamEventReceived(
        SOURCE, AT, step_number=1, content=text, chunk_index=index, is_complete=last
    )


def finished() -> AgentEvent:
    return AgentFinished(
        SOURCE,
        AT,
        status=AgentStatus.COMPLETED,
        stop_reason=StopReason.COMPLETED,
        outcome=None,
        total_steps=1,
        total_usage=Usage(),
        duration_ms=1.0,
    )


async def test_one_occurrence_is_one_entry_for_programs_and_people() -> None:
    log = buffer()
    log.begin()
    log.add_note(Note(message("started"), EventType.EXECUTION_STARTED))
    log.add_event(begun(), None)
    log.add_event(step(1), Note(message("step"), EventType.STEP_STARTED))
    log.add_note(Note(message("waits"), EventType.EXECUTION_QUEUED))
    log.add_event(chunk("Hello", 0, last=True), None)
    assert told(log.take()) == [
        ("agent.status", "started"),
        ("agent.step.started", "step"),
        ("", "waits"),
        ("agent.stream.chunk", None),
    ]
    assert log.take() == []


async def test_what_is_held_back_is_only_for_who_asks_for_it() -> None:
    log = buffer()
    log.add_event(begun(), None)
    log.add_event(step(1), None)
    log.hold(ends=True)
    log.add_event(finished(), None)
    log.add_note(Note(message("answer"), EventType.EXECUTION_COMPLETED))
    assert told(log.take()) == [("agent.status", None), ("agent.step.started", None)]
    [end] = log.take(held=True)
    assert told([end]) == [("agent.status", "answer")]
    assert end.payload is not None
    assert end.payload["status"] == "completed"


async def test_a_note_that_is_not_about_the_end_goes_before_it() -> None:
    log = buffer()
    log.add_event(begun(), None)
    log.add_event(step(1), None)
    log.hold(ends=True)
    log.add_event(finished(), None)
    log.add_note(Note(message("so far"), EventType.STEP_COMPLETED))
    log.add_note(Note(message("stopped"), EventType.EXECUTION_COMPLETED))
    assert told(log.take(held=True))[2:] == [("", "so far"), ("agent.status", "stopped")]


async def test_what_was_held_back_can_be_dropped_for_another_end() -> None:
    log = buffer("processing")
    log.add_event(begun(), None)
    log.add_event(step(1), None)
    log.hold(ends=True)
    log.add_event(finished(), None)
    log.drop_held()
    assert told(log.take(held=True)) == [("agent.step.started", None)]
    assert log.told_status == "processing"


async def test_a_status_that_clients_know_is_not_told_again() -> None:
    log = buffer("processing")
    log.begin()
    assert log.take() == []
    paused = buffer("paused")
    paused.begin()
    [status] = paused.take()
    assert status.payload is not None
    assert status.payload["previous_status"] == "paused"
    assert paused.told_status == "processing"


async def test_chunks_are_put_together_and_numbered_without_gaps() -> None:
    log = buffer("processing")
    log.add_event(begun(), None)
    log.add_event(step(1), None)
    log.add_event(chunk("a", 0), None)
    log.add_event(chunk("b", 1), None)
    first = log.take()
    log.add_event(chunk("c", 2), None)
    log.add_event(chunk("", 3, last=True), None)
    log.add_event(chunk("next", 0), None)
    second = log.take()
    chunks = [
        (it.payload["content"], it.payload["chunk_index"], it.payload["is_complete"])
        for it in (*first, *second)
        if it.type == "agent.stream.chunk" and it.payload is not None
    ]
    assert first[-1].type == "agent.step.started"
    assert chunks == [("abc", 0, True)]


async def test_texts_of_two_agents_stay_apart_and_half_characters_find_each_other() -> None:
    def of(agent: str, text: str, index: int, *, last: bool = False) -> tuple[Entry, Any]:
        payload = StreamChunkPayload(
            agent_id=agent, step_number=1, content=text, chunk_index=index, is_complete=last
        )
        kind = EnvelopeType.STREAM_CHUNK
        return Entry(type=kind, execution_id=agent, at=AT, payload=payload), payload

    responses = OpenResponses(an_execution(), LiveText(cast("Store", NoStore()), FakeClock()))
    assert responses.add(*of("x", "1\ud83d", 0)) is None
    assert responses.add(*of("y", "2", 0)) is None
    assert responses.add(*of("x", "\ude003", 1)) is None
    whole = [responses.add(*of("y", "\udce9", 1, last=True))]
    whole += [responses.add(*of("x", "4", 2, last=True))]
    kept: list[Any] = [(e.execution_id, e.payload) for e in whole if e is not None]
    assert [(id, p.content, p.chunk_index, p.is_complete) for id, p in kept] == [
        ("y", "2\ufffd", 0, True),
        ("x", "1\U0001f60034", 0, True),
    ]


@pytest.mark.parametrize("parts", [200, 15_000])
async def test_no_limit_of_a_transport_loses_streamed_text(parts: int) -> None:
    log = buffer("processing", BroadcastConfig(max_queued=50))
    log.add_event(begun(), None)
    log.add_event(step(1), None)
    for number in range(parts):
        log.add_event(chunk(f"{number} ", number), None)
    log.add_event(chunk("", parts, last=True), None)
    chunks = [it.payload for it in log.take() if it.type == "agent.stream.chunk"]
    text = "".join(payload["content"] for payload in chunks if payload is not None)
    assert text == "".join(f"{number} " for number in range(parts))


class Rows:
    """The two tables that an occurrence goes to."""

    def __init__(self, *message_ids: str) -> None:
        self.message_ids = set(message_ids)
        self.entries: list[StoredEntry] = []

    async def add_messages(self, session: Session, messages: Any) -> list[SessionMessage]:
        added = [it for it in messages if it.id not in self.message_ids]
        self.message_ids.update(it.id for it in added)
        return added

    async def append_entries(self, session: Session, entries: Any) -> list[StoredEntry]:
        self.entries += [
            StoredEntry(
                tenant_id="t",
                session_id="s",
                seq=seq,
                type=entry.type,
                payload=entry.payload,
                created_at=entry.created_at,
                execution_id=entry.execution_id,
            )
            for seq, entry in enumerate(entries, 7)
        ]
        return self.entries


async def stored(*occurrences: Occurrence, there: tuple[str, ...] = ()) -> list[StoredEntry]:
    rows = Rows(*there)
    await append(cast("Transaction", rows), a_session(), occurrences)
    return rows.entries


async def test_an_envelope_is_what_clients_see() -> None:
    [entry] = await stored(Occurrence.of_note(message("hello"), EventType.STEP_STARTED))
    assert envelope_of(entry) == {
        "id": entry.id,
        "seq": 7,
        "type": "step.started",
        "session_id": "s",
        "execution_id": "e",
        "timestamp": "2026-01-01T12:00:00.000Z",
        "payload": {
            "message_id": "m-hello",
            "event_type": "step.started",
            "role": "info",
            "content": "hello",
            "metadata": {},
            "agent_execution_id": "e",
            "created_at": "2026-01-01T12:00:00.000005Z",
        },
    }


async def test_a_message_that_is_there_is_not_shown_again() -> None:
    """A step that runs again after a crash has the same messages, and is another attempt."""
    note = Note(message("step"), EventType.STEP_STARTED)
    again = Occurrence(
        at=AT, execution_id="e", type="agent.step.started", payload={"attempt": 2}, note=note
    )
    for_people = Occurrence.of_note(message("started"), EventType.EXECUTION_STARTED)
    [entry] = await stored(for_people, again, there=("m-step", "m-started"))
    assert (entry.type, entry.payload) == ("agent.step.started", {"attempt": 2})
    [both] = await stored(again)
    assert both.payload["attempt"] == 2
    assert (both.payload["event_type"], both.payload["content"]) == ("step.started", "step")


async def test_what_a_message_keeps_for_intake_is_not_shown() -> None:
    kept = replace(message("hi"), metadata={"fingerprint": "f00", "steers": True, "own": 1})
    [entry] = await stored(Occurrence.of_note(kept, EventType.MESSAGE_SENT))
    assert entry.payload["metadata"] == {"steers": True, "own": 1}
    assert kept.metadata["fingerprint"] == "f00"
