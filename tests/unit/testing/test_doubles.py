"""The doubles themselves: model, tool, recorder, clock and ids."""

from datetime import UTC, datetime, timedelta

import pytest

from stepwell import Agent, AgentStatus, ModelRequest, ModelResponse, StepwellError
from stepwell.events import AgentFinished
from stepwell.testing import (
    EventRecorder,
    FakeClock,
    MockTool,
    ScriptedModel,
    SequentialIds,
    call,
)
from stepwell.tools import ToolEffect


async def test_a_scripted_model_answers_in_order_and_remembers_the_requests() -> None:
    model = ScriptedModel([call("add", id="c1"), ModelResponse(text="Whole."), "Text."])
    request = ModelRequest(messages=())
    responses = [await model.respond(request) for _ in range(3)]

    assert [r.text for r in responses] == ["", "Whole.", "Text."]
    assert responses[0].tool_calls[0].id == "c1"
    assert model.requests == [request] * 3


async def test_a_script_that_ends_says_so() -> None:
    model = ScriptedModel(["Only one."], name="short")
    await model.respond(ModelRequest(messages=()))

    with pytest.raises(StepwellError, match=r"'short' has 1 turns, and turn 2 .* add turns"):
        await model.respond(ModelRequest(messages=()))


async def test_an_exhausted_script_ends_a_run_as_data() -> None:
    state = await Agent(ScriptedModel([])).run("Go")

    assert state.status is AgentStatus.FAILED
    assert "has 0 turns" in state.explain()


async def test_a_function_can_be_the_script() -> None:
    model = ScriptedModel(lambda request: f"You said {request.messages[-1].text}.")

    assert (await Agent(model).run("hi")).final_response == "You said hi."


def test_a_scripted_call_takes_any_argument_names() -> None:
    asked = call("save", name="n", arguments={"a": 1}, self=2)

    assert (asked.name, asked.id) == ("save", "")
    assert asked.arguments == {"name": "n", "arguments": {"a": 1}, "self": 2}


async def test_a_mock_tool_returns_raises_and_remembers() -> None:
    give, fail = MockTool.returning("give", 1), MockTool.raising("fail", ValueError("no"))
    turns = [[call("give", x=1), call("fail")]]
    state = await Agent(ScriptedModel(turns), tools=[give, fail]).run("Go")

    texts = [e.text for e in state.steps[0].step.tool_executions]
    assert texts[0] == "1"
    assert "ValueError: no" in texts[1]
    assert (give.calls, fail.calls) == ([{"x": 1}], [{}])


async def test_a_mock_tool_awaits_an_async_handler() -> None:
    async def fetch(x: int) -> int:
        return x * 2

    state = await Agent(
        ScriptedModel([call("fetch", x=2), "ok"]), tools=[MockTool("fetch", fetch)]
    ).run("Go")

    assert state.steps[0].step.tool_executions[0].value == 4


def test_a_mock_tool_takes_the_options_of_a_tool() -> None:
    tool = MockTool("x", lambda: 1, effect="pure", timeout=1.0, parallel=False, description="D.")

    assert (tool.effect, tool.timeout, tool.parallel) == (ToolEffect.PURE, 1.0, False)
    assert tool.schema.description == "D."


async def test_a_recorder_keeps_names_and_events_by_class() -> None:
    recorder = EventRecorder()
    agent = Agent(ScriptedModel(["Hi."]))
    agent.wiretap(recorder)
    await agent.run("Go")

    assert recorder.names[0] == "AgentExecutionStarted"
    assert recorder.of(AgentFinished) == [recorder.events[-1]]


async def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    start = clock.now()
    clock.advance(1.5)
    await clock.sleep(60)

    assert clock.now() - start == timedelta(seconds=61.5)
    assert clock.monotonic() == 61.5
    assert clock.slept == [60]


def test_sequential_ids_count() -> None:
    ids = SequentialIds("run")

    assert [ids(), ids(), ids()] == ["run-1", "run-2", "run-3"]
