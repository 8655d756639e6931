"""What happens in a run is put in order, one entry each, and held back where it must be."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

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
from stepwell.ids import RunIds
from stepwell.journal import Entry
from stepwell.journal.envelope import EnvelopeType, StreamChunkPayload
from stepwell.messages import Usage
from stepwell.sessions.attempt.journal_buffer import JournalBuffer
from stepwell.sessions.attempt.live_text import LiveText
from stepwell.sessions.attempt.open_responses import OpenResponses
from stepwell.sessions.ledger.open_step import OpenStep
from stepwell.sessions.narration import Narrator
from stepwell.sessions.occurrence import Note, Occurrence
from stepwell.sessions.ports import Store
from stepwell.sessions.records import (
    PUBLISHED_STATUS,
    EventType,
    Execution,
    MessageRole,
    SessionMessage,
)
from stepwell.stores.bus.local_bus import LocalBus
from stepwell.testing import FakeClock
from stepwell.testing.stores_rows import an_execution

STANDARD = BroadcastConfig.standard()
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCE = EventSource(agent_id="a", parent_agent_id=None, execution_id="e")


def buffer(
    published_status: str | None = None, config: BroadcastConfig = STANDARD
) -> JournalBuffer:
    execution = Execution(
        id="e",
        tenant_id="t",
        session_id="s",
        agent_type="x",
        definition_hash="",
        created_at=AT,
        updated_at=AT,
        step_count=4,
        metadata={} if published_status is None else {PUBLISHED_STATUS: published_status},
    )
    return JournalBuffer(
        execution,
        config,
        ids=RunIds("e"),
        narrator=Narrator(execution),
        open_step=OpenStep(),
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
    log.hear(begun())
    log.hear(step(1))
    log.add_note(Note(message("waits"), EventType.EXECUTION_QUEUED))
    log.hear(chunk("Hello", 0, last=True))
    assert told(log.take()) == [
        ("agent.status", "started"),
        ("agent.step.started", "Step 1"),
        ("", "waits"),
        ("agent.stream.chunk", None),
    ]
    assert log.take() == []


async def test_what_is_held_back_is_only_for_who_asks_for_it() -> None:
    log = buffer()
    log.hear(begun())
    log.hear(step(1))
    log.hear(finished())
    log.add_note(Note(message("answer"), EventType.EXECUTION_COMPLETED))
    assert told(log.take()) == [("agent.status", None), ("agent.step.started", "Step 1")]
    [end] = log.take(held=True)
    assert told([end]) == [("agent.status", "answer")]
    assert end.payload is not None
    assert end.payload["status"] == "completed"


async def test_a_note_that_is_not_about_the_end_goes_before_it() -> None:
    log = buffer()
    log.hear(begun())
    log.hear(step(1))
    log.hear(finished())
    log.add_note(Note(message("so far"), EventType.STEP_COMPLETED))
    log.add_note(Note(message("stopped"), EventType.EXECUTION_COMPLETED))
    assert told(log.take(held=True))[2:] == [("", "so far"), ("agent.status", "stopped")]


async def test_what_was_held_back_can_be_dropped_for_another_end() -> None:
    log = buffer("processing")
    log.hear(begun())
    log.hear(step(1))
    log.hear(finished())
    log.drop_held()
    assert told(log.take(held=True)) == [("agent.step.started", "Step 1")]
    assert log.published_status == "processing"


async def test_a_status_that_clients_know_is_not_told_again() -> None:
    log = buffer("processing")
    log.begin()
    assert log.take() == []
    paused = buffer("paused")
    paused.begin()
    [status] = paused.take()
    assert status.payload is not None
    assert status.payload["previous_status"] == "paused"
    assert paused.published_status == "processing"


async def test_chunks_are_put_together_and_numbered_without_gaps() -> None:
    log = buffer("processing")
    log.hear(begun())
    log.hear(step(1))
    log.hear(chunk("a", 0))
    log.hear(chunk("b", 1))
    first = log.take()
    log.hear(chunk("c", 2))
    log.hear(chunk("", 3, last=True))
    log.hear(chunk("next", 0))
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
        kind = EnvelopeType.AGENT_STREAM_CHUNK
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
    log.hear(begun())
    log.hear(step(1))
    for number in range(parts):
        log.hear(chunk(f"{number} ", number))
    log.hear(chunk("", parts, last=True))
    chunks = [it.payload for it in log.take() if it.type == "agent.stream.chunk"]
    text = "".join(payload["content"] for payload in chunks if payload is not None)
    assert text == "".join(f"{number} " for number in range(parts))
