"""``agent.stream()``: text, tools, steps and the final state as they come."""

import asyncio
import contextlib

import pytest

from stepwell import (
    Agent,
    AgentStatus,
    Cancellation,
    Final,
    InputRequired,
    LimitReachedError,
    ModelError,
    StepCompleted,
    TextDelta,
    ToolCompleted,
    ToolStarted,
)
from stepwell.events import AgentFinished
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call
from tests.answers import answer_call


def adding_agent() -> Agent:
    model = ScriptedModel([call("add", id="c1", a=1, b=2), "Three it is."])
    return Agent(model, tools=[MockTool("add", lambda a, b: a + b)])


async def test_parts_come_in_the_order_in_which_things_happen() -> None:
    parts = [part async for part in adding_agent().stream("Go")]

    assert [type(part) for part in parts] == [
        ToolStarted,
        ToolCompleted,
        StepCompleted,
        TextDelta,
        TextDelta,
        TextDelta,
        StepCompleted,
        Final,
    ]


async def test_parts_tell_what_happened() -> None:
    parts = [part async for part in adding_agent().stream("Go")]
    [started] = [part for part in parts if isinstance(part, ToolStarted)]
    [completed] = [part for part in parts if isinstance(part, ToolCompleted)]
    text = "".join(part.text for part in parts if isinstance(part, TextDelta))
    steps = [part.state.step_count for part in parts if isinstance(part, StepCompleted)]

    assert (started.call_id, started.tool) == ("c1", "add")
    assert started.arguments == {"a": 1, "b": 2}
    assert (completed.call_id, completed.tool, completed.value) == ("c1", "add", 3)
    assert (completed.success, completed.error) == (True, None)
    assert text == "Three it is."
    assert steps == [1, 2]


async def test_the_final_part_holds_the_result_of_the_run() -> None:
    parts = [part async for part in adding_agent().stream("Go")]
    ran = await adding_agent().run("Go")
    final = parts[-1]

    assert isinstance(final, Final)
    assert final.state.final_response == ran.final_response
    assert final.state.usage == ran.usage
    assert [m.text for m in final.state.messages] == [m.text for m in ran.messages]


async def test_a_failed_run_ends_its_stream_with_the_failed_state() -> None:
    parts = [part async for part in Agent(ScriptedModel([ModelError("down")])).stream("Go")]

    assert isinstance(parts[-1], Final)
    assert parts[-1].state.status is AgentStatus.FAILED


async def test_a_run_without_a_step_has_only_a_final_part() -> None:
    parts = [part async for part in Agent(ScriptedModel([]), max_steps=0).stream("Go")]

    assert [type(part) for part in parts] == [Final]


async def test_a_limit_that_raises_is_raised_at_the_end_of_the_stream() -> None:
    agent = Agent(
        ScriptedModel([call("add")]),
        tools=[MockTool.returning("add", 3)],
        max_steps=1,
        at_limit="raise",
    )
    parts: list[object] = []

    async def read() -> None:
        async for part in agent.stream("Go"):
            parts.append(part)  # noqa: PERF401 - what came before the error matters

    with pytest.raises(LimitReachedError) as raised:
        await read()

    assert [type(part) for part in parts][:3] == [ToolStarted, ToolCompleted, StepCompleted]
    assert raised.value.state.step_count == 1


async def test_a_resumed_run_that_takes_no_step_tells_no_step() -> None:
    agent = Agent(
        ScriptedModel([call("ask", id="c1"), "ok"]),
        tools=[MockTool.returning("ask", InputRequired(prompt="?"))],
    )
    paused = await agent.run("Go")
    parts = [part async for part in agent.stream(paused)]

    assert [type(part) for part in parts] == [Final]


async def test_a_resumed_run_tells_only_its_new_steps() -> None:
    agent = Agent(
        ScriptedModel([call("ask", id="c1"), "ok"]),
        tools=[MockTool.returning("ask", InputRequired(prompt="?"))],
    )
    paused = await agent.run("Go")
    parts = [part async for part in agent.stream(answer_call(paused, "c1", "yes"))]

    assert [p.state.step_count for p in parts if isinstance(p, StepCompleted)] == [2]


async def test_abandoning_a_stream_cancels_what_is_in_flight_and_leaves_no_task() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hang() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    recorder = EventRecorder()
    agent = Agent(ScriptedModel([call("hang")]), tools=[hang])
    agent.wiretap(recorder)
    before = asyncio.all_tasks()
    async with contextlib.aclosing(agent.stream("Go")) as parts:
        async for part in parts:
            assert isinstance(part, ToolStarted)
            await started.wait()
            break

    assert cancelled.is_set()
    assert asyncio.all_tasks() == before
    assert [event.status for event in recorder.of(AgentFinished)] == [AgentStatus.CANCELLED]


async def test_a_stream_is_at_most_one_step_ahead_of_its_reader() -> None:
    model = ScriptedModel([call("add"), call("add"), call("add"), "ok"])
    agent = Agent(model, tools=[MockTool.returning("add", 3)])
    async with contextlib.aclosing(agent.stream("Go")) as parts:
        async for part in parts:
            if isinstance(part, StepCompleted):
                for _ in range(20):
                    await asyncio.sleep(0)
                break

    assert len(model.requests) == 1


async def test_a_stream_can_be_cancelled_from_outside() -> None:
    cancellation = Cancellation()
    parts = []
    async for part in adding_agent().stream("Go", cancellation=cancellation):
        parts.append(part)
        if isinstance(part, StepCompleted):
            cancellation.request("enough")

    assert isinstance(parts[-1], Final)
    assert parts[-1].state.status is AgentStatus.CANCELLED
