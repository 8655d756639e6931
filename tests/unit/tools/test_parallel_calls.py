"""Several calls of one response: together, bounded, in call order."""

import asyncio
import time
from typing import Any

import pytest

from stepwell import Agent, AgentStatus, FunctionTool, StopReason, ToolContext, ToolOutput, Usage
from stepwell.continuation import AgentStop
from stepwell.errors import ConfigurationError
from stepwell.state import ToolOutcome
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call


class Gauge:
    """An async tool function that knows how many of its calls run at once."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    async def __call__(self, n: int) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        self.now -= 1
        return n


@pytest.mark.parametrize(("bound", "calls", "most"), [(1, 5, 1), (3, 10, 3), (8, 4, 4)])
async def test_the_bound_on_parallel_calls_is_respected_and_used(
    bound: int, calls: int, most: int
) -> None:
    gauge = Gauge()
    asked = [call("gauge", n=n) for n in range(calls)]
    agent = Agent(
        ScriptedModel([asked, "ok"]),
        tools=[FunctionTool(gauge, name="gauge")],
        max_parallel_tools=bound,
    )
    state = await agent.run("Go")

    assert gauge.most == most
    assert [e.value for e in state.steps[0].step.tool_executions] == list(range(calls))


def test_a_bound_below_one_is_refused_with_advice() -> None:
    with pytest.raises(ConfigurationError, match="max_parallel must be 1 or more, got 0"):
        Agent(ScriptedModel([]), max_parallel_tools=0)


async def test_results_stay_in_call_order_when_later_calls_finish_first() -> None:
    second_done = asyncio.Event()

    async def first() -> str:
        await second_done.wait()
        return "first"

    async def second() -> str:
        second_done.set()
        return "second"

    recorder = EventRecorder()
    calls = [call("first", id="c1"), call("second", id="c2")]
    agent = Agent(ScriptedModel([calls, "ok"]), tools=[first, second])
    agent.wiretap(recorder)
    state = await agent.run("Go")

    assert [e.text for e in state.steps[0].step.tool_executions] == ["first", "second"]
    assert [m.text for m in state.messages][2:4] == ["first", "second"]
    completed = [e.call_id for e in recorder.events if type(e).__name__ == "ToolCallCompleted"]
    assert completed == ["c2", "c1"]


async def test_a_tool_that_is_not_parallel_runs_alone() -> None:
    running: set[str] = set()
    beside: dict[str, set[str]] = {}

    def tool_called(name: str, *, parallel: bool) -> FunctionTool:
        async def act() -> str:
            running.add(name)
            for _ in range(3):
                await asyncio.sleep(0)
                beside.setdefault(name, set()).update(running - {name})
            running.discard(name)
            return name

        return FunctionTool(act, name=name, parallel=parallel)

    tools = [tool_called(name, parallel=name != "alone") for name in ("a", "b", "alone", "c", "d")]
    calls = [call(name) for name in ("a", "b", "alone", "c", "d")]
    state = await Agent(ScriptedModel([calls, "ok"]), tools=tools).run("Go")

    assert beside["alone"] == set()
    assert "b" in beside["a"]
    assert "d" in beside["c"]
    assert "c" not in beside["a"]
    texts = [e.text for e in state.steps[0].step.tool_executions]
    assert texts == ["a", "b", "alone", "c", "d"]


async def test_b217_a_value_written_by_a_tool_is_read_by_the_next_call_of_the_batch() -> None:
    async def write(value: int) -> ToolOutput:
        return ToolOutput(value="written", metadata={"key": value})

    async def read(context: ToolContext) -> Any:
        return context.state.metadata.get("key")

    tools = [FunctionTool(write, parallel=False), FunctionTool(read, parallel=False)]
    calls = [call("write", value=1), call("read"), call("write", value=2), call("read")]
    state = await Agent(ScriptedModel([calls, "ok"]), tools=tools).run("Go")

    values = [e.value for e in state.steps[0].step.tool_executions]
    assert values == ["written", 1, "written", 2]
    assert state.metadata["key"] == 2


async def cpu_seconds(calls: int) -> float:
    agent = Agent(
        ScriptedModel([[call("noop", n=n) for n in range(calls)], "ok"]),
        tools=[MockTool("noop", lambda n: n)],
    )
    started = time.process_time()
    state = await agent.run("Go")
    spent = time.process_time() - started
    assert [e.value for e in state.steps[0].step.tool_executions] == list(range(calls))
    return spent


async def test_b166_the_time_of_a_batch_is_linear_in_its_calls() -> None:
    await cpu_seconds(50)
    small = min([await cpu_seconds(50) for _ in range(5)])
    large = min([await cpu_seconds(500) for _ in range(3)])

    # Ten times the calls; quadratic time would be a hundred times as much.
    assert large < 40 * small


async def test_b166_each_of_500_calls_has_one_start_one_end_and_one_result() -> None:
    recorder = EventRecorder()
    agent = Agent(
        ScriptedModel([[call("noop", n=n) for n in range(500)], "ok"]),
        tools=[MockTool("noop", lambda n: n)],
    )
    agent.wiretap(recorder)
    state = await agent.run("Go")

    assert recorder.names.count("ToolCallStarted") == 500
    assert recorder.names.count("ToolCallCompleted") == 500
    assert len(state.steps[0].step.messages) == 501


async def test_b033_a_tool_that_stops_the_run_keeps_the_reason_and_what_ran_before() -> None:
    async def fine() -> ToolOutput:
        return ToolOutput(value="fine", usage=Usage(input_tokens=3))

    async def halt() -> str:
        raise AgentStop(StopReason.STOP_REQUESTED, "the shop closed")

    tools = [FunctionTool(f, parallel=False) for f in (fine, halt)]
    calls = [call("fine", id="c1"), call("halt", id="c2"), call("fine", id="c3")]
    model = ScriptedModel([calls, "never"], usage=Usage(input_tokens=10, output_tokens=5))
    recorder = EventRecorder()
    agent = Agent(model, tools=tools)
    agent.wiretap(recorder)
    state = await agent.run("Go")
    executions = state.steps[0].step.tool_executions

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.STOP_REQUESTED
    assert state.stop.resolved_by == "halt"
    assert "the shop closed" in state.explain()
    assert state.status is AgentStatus.STOPPED
    assert [e.call.id for e in executions] == ["c1", "c2", "c3"]
    assert executions[0].outcome is ToolOutcome.COMPLETED
    assert executions[2].outcome is ToolOutcome.NOT_RUN
    assert "the shop closed" in executions[2].text
    assert state.usage == Usage(input_tokens=13, output_tokens=5)
    assert len(model.requests) == 1
    assert not state.had_errors
    assert recorder.names.count("ContinuationEvaluated") == 1


@pytest.mark.parametrize("reason", ["user_requested", "guard", "stop_requested", "finish_reason"])
async def test_b033_every_reason_a_tool_stops_with_is_kept(reason: str) -> None:
    def halt() -> str:
        raise AgentStop(reason, "enough")

    state = await Agent(ScriptedModel([call("halt"), "never"]), tools=[halt]).run("Go")

    assert state.stop is not None
    assert state.stop.stop_reason == reason
    assert state.status is AgentStatus.after(StopReason(reason))


async def test_b033_calls_that_already_run_beside_the_stopping_one_are_kept() -> None:
    stopping = asyncio.Event()

    async def slow() -> str:
        await stopping.wait()
        await asyncio.sleep(0)
        return "finished"

    async def halt() -> str:
        stopping.set()
        raise AgentStop(message="enough")

    state = await Agent(
        ScriptedModel([[call("slow", id="c1"), call("halt", id="c2")]]), tools=[slow, halt]
    ).run("Go")

    assert state.steps[0].step.tool_executions[0].text == "finished"
    assert len(state.messages) == 4
