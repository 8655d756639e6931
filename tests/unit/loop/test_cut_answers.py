"""What a model had said when the run ended is kept, marked as incomplete, with the known usage."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import Agent, AgentState, AgentStatus, Cancellation, StopReason
from stepwell.drivers import ReActDriver
from stepwell.events import AgentFinished, StreamEventReceived, TokenUsageReported
from stepwell.messages import Usage
from stepwell.models import (
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    StreamPart,
    TextDelta,
    ToolCallStart,
    UsageReport,
)
from stepwell.serialization import AgentStateSerializer
from stepwell.testing import EventRecorder, ScriptedModel

ENOUGH = 30.0
DECISION = '{"thought": "Easy.", "type": "final_answer"}'


class Halfway:
    """A model that streams these parts and then nothing more."""

    name = "halfway"

    def __init__(self, *parts: StreamPart, first: str | None = None) -> None:
        self._parts = parts
        self._first = first
        self.stands = asyncio.Event()

    async def respond(self, request: ModelRequest) -> ModelResponse:
        if self._first is None:
            raise AssertionError("it is streamed")
        return ModelResponse(text=self._first, usage=Usage(input_tokens=1))

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        for part in self._parts:
            yield part
        self.stands.set()
        await asyncio.Event().wait()


HALF = (UsageReport(Usage(input_tokens=12), 0.25), TextDelta("Once upon "), TextDelta("a time"))


async def cut(agent: Agent, model: Halfway) -> tuple[AgentState, EventRecorder]:
    recorder, cancellation = EventRecorder(), Cancellation()
    agent.wiretap(recorder)
    run = asyncio.create_task(agent.run("A story", cancellation=cancellation))
    await asyncio.wait_for(model.stands.wait(), ENOUGH)
    cancellation.request("enough")
    return await asyncio.wait_for(run, ENOUGH), recorder


async def test_a_cancelled_answer_is_kept_and_marked() -> None:
    model = Halfway(*HALF)

    state, recorder = await cut(Agent(model), model)

    assert state.status is AgentStatus.CANCELLED
    answer = state.messages[-1]
    assert (answer.text, answer.is_assistant(), answer.is_incomplete) == (
        "Once upon a time",
        True,
        True,
    )
    assert (state.usage.input_tokens, state.cost) == (12, 0.25)
    assert state.steps[0].step.is_incomplete
    assert recorder.of(TokenUsageReported)[0].usage.input_tokens == 12
    [end] = recorder.of(AgentFinished)
    assert end.final_response == "Once upon a time"
    serializer = AgentStateSerializer()
    loaded = serializer.deserialize(serializer.serialize(state))
    assert loaded.messages[-1].is_incomplete


async def test_tool_calls_of_a_cut_answer_are_dropped() -> None:
    ran: list[str] = []

    def delete() -> str:
        ran.append("delete")
        return "gone"

    model = Halfway(*HALF, ToolCallStart(index=0, id="c1", name="delete"))

    state, _ = await cut(Agent(model, tools=[delete]), model)

    assert state.messages[-1].tool_calls == ()
    assert ran == []


async def test_usage_alone_is_counted_without_a_message() -> None:
    model = Halfway(HALF[0])

    state, _ = await cut(Agent(model), model)

    assert state.messages[-1].is_user()
    assert state.usage.input_tokens == 12


async def test_without_anything_there_is_no_step() -> None:
    model = Halfway()

    state, _ = await cut(Agent(model), model)

    assert (state.step_count, state.usage.total_tokens) == (0, 0)


async def test_a_deadline_keeps_the_text_as_well() -> None:
    model = Halfway(*HALF)
    agent = Agent(model, timeout=0.5)
    agent.on_event(StreamEventReceived, lambda event: None)

    state = await asyncio.wait_for(agent.run("A story"), ENOUGH)

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    assert state.messages[-1].is_incomplete


async def test_the_conversation_goes_on_behind_a_cut_answer() -> None:
    model = Halfway(*HALF)
    state, _ = await cut(Agent(model), model)
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request)
        return "Well then."

    state = await Agent(ScriptedModel(answer)).run(state.with_user_message("Go on"))

    assert [message.role for message in asked[0].messages] == ["user", "assistant", "user"]
    assert state.final_response == "Well then."


async def test_a_typed_output_is_not_asked_for_again_after_a_cut() -> None:
    model = Halfway(TextDelta('Here: {"name"'))
    agent: Any = Agent(model, output_type=dict[str, str])

    state, _ = await cut(agent, model)

    assert state.status is AgentStatus.CANCELLED
    assert state.messages[-1].is_incomplete


@pytest.mark.parametrize("parts", [HALF])
async def test_the_last_turn_of_a_react_driver_is_kept_too(parts: tuple[StreamPart, ...]) -> None:
    model = Halfway(*parts, first=DECISION)

    state, _ = await cut(Agent(driver=ReActDriver(model, final_via_inference=True)), model)

    assert (state.messages[-1].text, state.messages[-1].is_incomplete) == ("Once upon a time", True)
    assert state.usage.input_tokens == 13


async def test_a_finished_answer_is_not_marked() -> None:
    class Whole(Halfway):
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
            yield TextDelta("Done.")
            yield ResponseEnd(ModelResponse(text="Done."))

    agent = Agent(Whole())
    agent.on_event(StreamEventReceived, lambda event: None)

    state = await agent.run("Go")

    assert not state.messages[-1].is_incomplete
