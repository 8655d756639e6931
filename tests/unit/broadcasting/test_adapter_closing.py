"""Every response and every call that was told of has an end, and transports harm nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from stepwell import (
    Agent,
    Cancellation,
    ErrorPolicy,
    ModelError,
    ModelRequest,
    ModelResponse,
    TextDelta,
    ThinkingDelta,
)
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.composite import CompositeBroadcaster
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentStepStarted,
    EventSource,
    StreamEventReceived,
    ThinkingReceived,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.models import ResponseEnd, StreamPart
from stepwell.testing import FakeClock, MockTool, ScriptedModel, call
from tests.unit.broadcasting.following import Followed, assert_in_order


class BreakingModel:
    """Streams what it is given, turn by turn; an exception or a wait may be in between."""

    name = "breaking"

    def __init__(self, *turns: list[Any]) -> None:
        self.turns = list(turns)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        raise AssertionError("it was asked to stream")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        for part in self.turns.pop(0):
            if isinstance(part, Exception):
                raise part
            if isinstance(part, asyncio.Event):
                await part.wait()
            else:
                yield part


def ended(text: str) -> ResponseEnd:
    return ResponseEnd(ModelResponse(text=text))


async def test_a_response_that_breaks_off_is_closed_before_the_next_begins() -> None:
    """B150."""
    model = BreakingModel(
        [TextDelta("Hel"), TextDelta("lo"), ModelError("cut")], [TextDelta("Hi"), ended("Hi")]
    )
    followed = Followed(Agent(model, error_policy=ErrorPolicy.retry_all(3)))

    await followed.run()

    chunks = followed.payloads("agent.stream.chunk")
    told = [(c["step_number"], c["chunk_index"], c["content"], c["is_complete"]) for c in chunks]
    assert told == [
        (1, 0, "Hel", False),
        (1, 1, "lo", False),
        (1, 2, "", True),
        (2, 0, "Hi", False),
        (2, 1, "", True),
    ]
    assert_in_order(followed.envelopes)


async def test_a_response_that_is_cancelled_is_closed_before_the_end() -> None:
    model = BreakingModel([TextDelta("Hel"), asyncio.Event()])
    cancellation = Cancellation()
    followed = Followed(Agent(model))
    followed.agent.on_event(StreamEventReceived, lambda _: cancellation.request("enough"))

    await followed.run(cancellation=cancellation)

    assert followed.types[-3:] == ["stream.chunk", "step.completed", "status"]
    assert followed.payloads("agent.stream.chunk")[-1]["is_complete"] is True
    assert_in_order(followed.envelopes)


async def test_a_tool_that_is_cancelled_in_flight_has_its_result() -> None:
    cancellation = Cancellation()
    hang = MockTool("hang", asyncio.Event().wait)
    followed = Followed(Agent(ScriptedModel([[call("hang"), call("hang")]]), tools=[hang]))
    followed.agent.on_event(ToolCallStarted, lambda _: cancellation.request("enough"))

    await followed.run(cancellation=cancellation)

    assert followed.statuses() == ["processing", "cancelled"]
    assert [t["success"] for t in followed.payloads("agent.tool.completed")] == [False]
    assert_in_order(followed.envelopes)


async def test_a_run_whose_task_was_cancelled_is_cancelled() -> None:
    hanging = asyncio.Event()

    async def hang() -> None:
        hanging.set()
        await asyncio.Event().wait()

    followed = Followed(
        Agent(ScriptedModel([call("hang", id="c1")]), tools=[MockTool("hang", hang)])
    )
    task = asyncio.create_task(followed.agent.run("Go."))
    await hanging.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await followed.adapter.flush()

    assert followed.types[-2:] == ["tool.completed", "status"]
    assert followed.statuses() == ["processing", "cancelled"]
    last = followed.payloads("agent.status")[-1]
    assert last["stop_reason"] == "user_requested"
    assert last["reason"] == "the task that it ran in was cancelled"
    assert followed.payloads("agent.tool.completed")[0]["success"] is False
    assert_in_order(followed.envelopes)


async def test_a_run_that_was_left_early_is_closed_by_a_status_by_hand() -> None:
    followed = Followed(
        Agent(ScriptedModel([call("look"), "Never."]), tools=[MockTool.returning("look", "x")])
    )
    steps = aiter(followed.agent.iterator("Go."))
    await anext(steps)
    await steps.aclose()
    assert followed.adapter.status == "processing"

    followed.adapter.on_agent_status_changed("cancelled")
    await followed.adapter.flush()

    assert followed.statuses() == ["processing", "cancelled"]
    assert_in_order(followed.envelopes)


CLOCK = FakeClock()
ROOT = EventSource(agent_id="A", parent_agent_id=None, execution_id="x1")


def step(number: int) -> AgentEvent:
    at = CLOCK.now()
    return AgentStepStarted(ROOT, at, step_number=number, message_count=1, available_tools=())


def begun() -> AgentEvent:
    return AgentExecutionStarted(
        ROOT, CLOCK.now(), message_count=1, available_tools=(), resumed=False
    )


def started() -> AgentEvent:
    return ToolCallStarted(ROOT, CLOCK.now(), tool="t", args={}, call_id="c1", step_number=1)


def completed() -> AgentEvent:
    at = CLOCK.now()
    return ToolCallCompleted(
        ROOT,
        at,
        tool="t",
        call_id="c1",
        success=True,
        error=None,
        value="late",
        started_at=at,
        completed_at=at,
        duration_ms=float("nan"),
    )


async def heard(*events: AgentEvent) -> list[Mapping[str, Any]]:
    screen = RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(screen, "s1", "e1", BroadcastConfig.debug())
    for event in (begun(), *events):
        adapter.wiretap()(event)
    await adapter.flush()
    assert_in_order(screen.envelopes)
    return [envelope["payload"] for envelope in screen.of_type("agent.tool.completed")]


async def test_a_result_that_comes_after_its_call_was_given_up_is_not_told() -> None:
    (given_up,) = await heard(step(1), started(), step(2), completed())

    assert given_up["success"] is False


async def test_a_call_that_runs_again_has_its_result_again() -> None:
    told = await heard(step(1), started(), step(2), started(), completed(), step(3))

    assert [payload["success"] for payload in told] == [False, True]
    assert told[1]["duration_ms"] == 0.0


async def test_of_two_responses_in_one_step_the_first_is_closed_before_the_second() -> None:
    def chunk(index: int) -> AgentEvent:
        at = CLOCK.now()
        return StreamEventReceived(
            ROOT, at, step_number=1, content="x", chunk_index=index, is_complete=False
        )

    # What is heard looks at the order of chunks itself.
    assert await heard(step(1), chunk(0), chunk(1), chunk(0), step(2)) == []


class Refusing:
    async def broadcast(self, channel: str, envelope: Mapping[str, Any]) -> None:
        raise ConnectionError("no route")


class Blocking:
    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def broadcast(self, channel: str, envelope: Mapping[str, Any]) -> None:
        await self.released.wait()


async def test_a_broken_transport_harms_neither_the_run_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B158."""
    caplog.set_level(logging.WARNING, "stepwell.broadcasting")
    screen = RecordingBroadcaster()
    everywhere = CompositeBroadcaster(Refusing(), screen, Refusing())
    adapter = AgentEventEnvelopeAdapter(everywhere, "s1", "e1")
    blocking = Blocking()
    narrow = AgentEventEnvelopeAdapter(blocking, "s1", "e1", BroadcastConfig(max_queued=3))
    agent = Agent(ScriptedModel(["Hi there, all of you."]))
    agent.wiretap(adapter.wiretap())
    agent.wiretap(narrow.wiretap())

    state = await agent.run("Go.")
    assert narrow.delivered == 0
    blocking.released.set()
    await asyncio.gather(adapter.flush(), narrow.flush())

    assert state.final_response == "Hi there, all of you."
    assert len(screen.envelopes) == 10
    assert adapter.delivered == 10
    assert (adapter.failed, adapter.dropped) == (20, 0)
    assert narrow.delivered + narrow.dropped == 10
    assert narrow.dropped >= 6
    assert "no route" in caplog.text
    assert "Refusing" in caplog.text


def test_a_handler_may_be_called_where_no_loop_runs() -> None:
    """Nothing raises and nothing is left unawaited; a later flush sends it all."""
    screen = RecordingBroadcaster()
    events: list[AgentEvent] = []
    agent = Agent(ScriptedModel(["Hi."]))
    agent.wiretap(events.append)
    agent.run_sync("Go.")
    adapter = AgentEventEnvelopeAdapter(screen, "s1", "e1")

    for event in events:
        adapter.wiretap()(event)
    asyncio.run(adapter.flush())

    assert screen.of_type("agent.status")[-1]["payload"]["status"] == "completed"


async def test_a_chunk_after_the_terminal_status_is_dropped() -> None:
    followed = Followed(Agent(ScriptedModel(["One two three."])))
    followed.agent.on_event(
        StreamEventReceived, lambda _: followed.adapter.on_agent_status_changed("cancelled")
    )

    await followed.run()

    types = followed.types
    assert followed.statuses() == ["processing", "cancelled"]
    assert "stream.chunk" not in types[types.index("status", types.index("status") + 1) :]
    assert_in_order(followed.envelopes)


async def test_empty_chunks_of_a_model_are_not_sent() -> None:
    model = BreakingModel(
        [
            TextDelta(""),
            TextDelta("Hi"),
            TextDelta(""),
            ThinkingDelta(""),
            TextDelta("!"),
            ended("Hi!"),
        ]
    )
    followed = Followed(Agent(model))
    heard: list[AgentEvent] = []
    followed.agent.wiretap(heard.append)

    await followed.run()

    chunks = followed.payloads("agent.stream.chunk")
    told = [(c["chunk_index"], c["content"], c["is_complete"]) for c in chunks]
    assert told == [(0, "Hi", False), (1, "!", False), (2, "", True)]
    assert not [event for event in heard if isinstance(event, ThinkingReceived)]
