"""What a run tells is put in order, streamed text in few pieces, and held back where it must be."""

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
from stepwell.sessions.log import LogBuffer, envelope_of, message_event
from stepwell.sessions.ports import Store
from stepwell.sessions.records import (
    EventType,
    Execution,
    LoggedEvent,
    MessageRole,
    SessionMessage,
)
from stepwell.stores.bus.local_bus import LocalBus
from stepwell.testing import FakeClock, SequentialIds
from stepwell.testing.stores_rows import an_execution

STANDARD = BroadcastConfig.standard()
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCE = EventSource(agent_id="a", parent_agent_id=None, execution_id="e")


def buffer(told_status: str | None = None, config: BroadcastConfig = STANDARD) -> LogBuffer:
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
    return LogBuffer(
        execution,
        "a",
        config,
        told_status=told_status,
        clock=FakeClock(),
        new_id=SequentialIds(),
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


async def test_messages_stand_behind_what_was_told_before_them() -> None:
    log = buffer()
    log.hear(begun())
    log.say(message("first"), EventType.EXECUTION_STARTED)
    log.hear(step(1))
    log.say(message("second"), EventType.STEP_STARTED)
    log.hear(chunk("Hello", 0, last=True))
    told = log.take()
    assert [event.type for event in told.events] == [
        "execution.started",
        "agent.status",
        "agent.step.started",
        "step.started",
        "agent.stream.chunk",
    ]
    assert [it.content for it in told.messages] == ["first", "second"]
    assert log.take().events == []


async def test_a_message_that_comes_twice_is_told_once() -> None:
    log = buffer()
    log.say(message("once"), EventType.STEP_STARTED)
    log.take()
    log.say(message("once"), EventType.STEP_STARTED)
    assert log.take().messages == []


async def test_what_is_held_back_is_only_for_who_asks_for_it() -> None:
    log = buffer()
    log.hear(begun())
    log.hear(step(1))
    log.hold(ends=True)
    log.hear(finished())
    log.say(message("answer"), EventType.EXECUTION_COMPLETED)
    chatter = log.take()
    assert [event.type for event in chatter.events] == ["agent.status", "agent.step.started"]
    assert not chatter.messages
    ended = log.take(held=True)
    assert [event.type for event in ended.events] == ["execution.completed", "agent.status"]
    assert ended.events[1].payload["status"] == "completed"


async def test_what_was_held_back_can_be_dropped_for_another_end() -> None:
    log = buffer("processing")
    log.hear(begun())
    log.hear(step(1))
    log.hold(ends=True)
    log.hear(finished())
    log.drop_held()
    told = log.take(held=True)
    assert [event.type for event in told.events] == ["agent.step.started"]
    assert log.told_status == "processing"


async def test_a_status_that_clients_know_is_not_told_again() -> None:
    log = buffer("processing")
    log.begin()
    assert log.take().events == []
    paused = buffer("paused")
    paused.begin()
    [event] = paused.take().events
    assert event.payload["previous_status"] == "paused"
    assert paused.told_status == "processing"


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
    told: list[Any] = [
        (e.payload["content"], e.payload["chunk_index"], e.payload["is_complete"])
        for e in (*first.events, *second.events)
        if e.type == "agent.stream.chunk"
    ]
    assert first.events[-1].type == "agent.step.started"
    assert told == [("abc", 0, True)]


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
    told: list[Any] = [(e.execution_id, e.payload) for e in whole if e is not None]
    assert [(id, p.content, p.chunk_index, p.is_complete) for id, p in told] == [
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
    events = log.take().events
    text = "".join(e.payload["content"] for e in events if e.type == "agent.stream.chunk")
    assert text == "".join(f"{number} " for number in range(parts))


async def test_an_envelope_is_what_clients_see() -> None:
    event = message_event(message("hello"), EventType.STEP_STARTED)
    assert event == message_event(message("hello"), EventType.STEP_STARTED)
    logged = LoggedEvent(
        id=event.id,
        tenant_id="t",
        session_id="s",
        seq=7,
        type=event.type,
        payload=event.payload,
        created_at=event.created_at,
        execution_id=event.execution_id,
    )
    assert envelope_of(logged) == {
        "id": event.id,
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


async def test_what_a_message_keeps_for_intake_is_not_told() -> None:
    kept = replace(message("hi"), metadata={"fingerprint": "f00", "steers": True, "own": 1})
    told = message_event(kept, EventType.MESSAGE_SENT).payload
    assert told["metadata"] == {"steers": True, "own": 1}
    assert kept.metadata["fingerprint"] == "f00"
