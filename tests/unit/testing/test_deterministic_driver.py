"""The scripted driver: real tools, foreseeable steps."""

import asyncio

import pytest

from stepwell import Agent, AgentState, AgentStatus, ErrorPolicy, Usage
from stepwell.errors import ErrorType
from stepwell.events import StreamEventReceived
from stepwell.state import StepType
from stepwell.testing import (
    DeterministicAgentDriver,
    EventRecorder,
    MockTool,
    ScenarioStep,
    call,
)
from stepwell.tools import ToolExecutor


def scripted(*steps: ScenarioStep, strict: bool = False) -> DeterministicAgentDriver:
    return DeterministicAgentDriver.from_steps(*steps, strict=strict)


async def test_b238_each_response_is_one_final_step() -> None:
    agent = Agent(driver=DeterministicAgentDriver.from_responses("First.", "Second."))
    first = await agent.run("One")
    second = await agent.run(first.with_user_message("Two"))

    assert (first.final_response, second.final_response) == ("First.", "Second.")
    assert (first.step_count, second.step_count) == (1, 1)
    assert first.steps[0].step.step_type is StepType.FINAL_RESPONSE
    assert [m.text for m in second.messages] == ["One", "First.", "Two", "Second."]


async def test_b238_a_tool_call_runs_the_real_tool_and_keeps_its_value() -> None:
    add = MockTool("add", lambda a, b: {"sum": a + b})
    driver = scripted(
        ScenarioStep.tool_call(
            "add", {"a": 1, "b": 2}, response="Adding.", usage=Usage(input_tokens=5), cost=0.1
        ),
        ScenarioStep.final("Three.", usage=Usage(output_tokens=2)),
    )
    state = await Agent(driver=driver, tools=[add]).run("Go")
    step = state.steps[0].step

    assert add.calls == [{"a": 1, "b": 2}]
    assert step.tool_executions[0].value == {"sum": 3}
    assert (step.text, step.step_type) == ("Adding.", StepType.TOOL_EXECUTION)
    assert state.final_response == "Three."
    assert state.usage == Usage(input_tokens=5, output_tokens=2)
    assert state.cost == pytest.approx(0.1)


async def test_b238_several_calls_of_one_step() -> None:
    add = MockTool("add", lambda n: n)
    driver = scripted(
        ScenarioStep.tool_calls(call("add", n=1), call("add", n=2), call("add", id="mine", n=3)),
        ScenarioStep.final("ok"),
    )
    state = await Agent(driver=driver, tools=[add]).run("Go")
    executions = state.steps[0].step.tool_executions

    assert [e.value for e in executions] == [1, 2, 3]
    assert len({e.call.id for e in executions}) == 3
    assert executions[2].call.id == "mine"


async def test_b239_more_steps_than_scripted_repeat_the_last() -> None:
    driver = scripted(ScenarioStep.tool_call("add", {"n": 1}))
    add = MockTool("add", lambda n: n)
    state = await Agent(driver=driver, tools=[add], max_steps=4).run("Go")

    assert state.step_count == 4
    assert len(add.calls) == 4


async def test_b239_a_strict_script_that_ends_is_a_clear_error() -> None:
    driver = scripted(ScenarioStep.tool_call("add", {"n": 1}), strict=True)
    state = await Agent(driver=driver, tools=[MockTool("add", lambda n: n)]).run("Go")

    assert state.status is AgentStatus.FAILED
    assert "the script has 1 steps, and step 2 was asked for; add steps" in state.explain()


async def test_b239_without_a_script_the_default_response_is_given() -> None:
    plain = await Agent(driver=DeterministicAgentDriver()).run("Go")
    chosen = await Agent(driver=DeterministicAgentDriver(default_response="Hm.")).run("Go")

    assert plain.final_response == "(no script)"
    assert chosen.final_response == "Hm."


async def test_b241_an_error_step_fails_the_run_after_two_states() -> None:
    driver = scripted(ScenarioStep.tool_call("add", {"n": 1}), ScenarioStep.error("it broke"))
    agent = Agent(driver=driver, tools=[MockTool("add", lambda n: n)])
    states = [state async for state in agent.iterator("Go")]

    assert [state.status for state in states] == [AgentStatus.IN_PROGRESS, AgentStatus.FAILED]
    assert states[1].steps[1].step.step_type is StepType.ERROR
    assert states[1].steps[1].step.errors[0].message == "it broke"
    assert "it broke" in states[1].explain()


async def test_b241_an_error_of_a_kind_is_handled_as_that_kind() -> None:
    driver = scripted(
        ScenarioStep.error("slow", error_type="timeout"), ScenarioStep.final("Recovered.")
    )
    state = await Agent(driver=driver, error_policy=ErrorPolicy.retry_tool_errors(3)).run("Go")

    assert state.steps[0].step.errors[0].type is ErrorType.TIMEOUT
    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "Recovered.")
    assert state.had_errors


async def test_b242_a_call_that_is_not_executed_still_lets_the_run_go_on() -> None:
    add = MockTool.returning("add", 3)
    driver = scripted(
        ScenarioStep.tool_call("add", {"a": 1}, executes_tools=False),
        ScenarioStep.tool("Only said."),
        ScenarioStep.final("ok"),
    )
    state = await Agent(driver=driver, tools=[add]).run("Go")

    assert add.calls == []
    assert [recorded.step.tool_executions for recorded in state.steps] == [(), (), ()]
    assert (state.step_count, state.final_response) == (3, "ok")
    calls = [c.id for m in state.messages for c in m.tool_calls]
    results = [m.tool_result.call_id for m in state.messages if m.tool_result]
    assert results == calls


async def test_b243_child_steps_are_what_a_subagent_replays() -> None:
    driver = DeterministicAgentDriver.from_steps(
        ScenarioStep.final("Parent."), child_steps=(ScenarioStep.final("Child."),)
    )
    parent = await Agent(driver=driver).run("Go")
    child = await Agent(driver=driver.for_child()).run("Go")

    assert (parent.final_response, child.final_response) == ("Parent.", "Child.")


async def test_b243_child_steps_survive_binding_to_the_agents_tools() -> None:
    driver = DeterministicAgentDriver.from_steps(child_steps=(ScenarioStep.final("Child."),))
    child = driver.bound_to(ToolExecutor()).for_child()

    assert (await Agent(driver=child).run("Go")).final_response == "Child."


async def test_one_driver_serves_runs_at_the_same_time() -> None:
    agent = Agent(
        driver=scripted(ScenarioStep.tool_call("add", {"n": 1}), ScenarioStep.final("ok")),
        tools=[MockTool("add", lambda n: n)],
    )
    states = await asyncio.gather(*(agent.run(str(n)) for n in range(5)))

    assert [state.step_count for state in states] == [2] * 5
    assert {state.final_response for state in states} == {"ok"}


async def test_stepping_iterating_and_running_end_in_the_same_state() -> None:
    def agent() -> Agent:
        driver = scripted(ScenarioStep.tool_call("add", {"n": 1}), ScenarioStep.final("ok"))
        return Agent(driver=driver, tools=[MockTool("add", lambda n: n)])

    def facts(state: AgentState) -> tuple[object, ...]:
        texts = [m.text for m in state.messages]
        return texts, state.step_count, state.status, state.final_response, state.outcome

    ran = await agent().run("Go")
    iterated = [state async for state in agent().iterator("Go")][-1]
    stepper = agent()
    stepped = await stepper.next_step("Go")
    while stepper.has_next_step(stepped):
        stepped = await stepper.next_step(stepped)

    assert facts(ran)[:4] == facts(iterated)[:4] == facts(stepped)[:4]


async def test_a_scripted_response_is_told_as_a_stream() -> None:
    recorder = EventRecorder()
    agent = Agent(driver=DeterministicAgentDriver.from_responses("Hello."))
    agent.on_event(StreamEventReceived, recorder)
    await agent.run("Go")

    told = [(e.content, e.chunk_index, e.is_complete) for e in recorder.of(StreamEventReceived)]
    assert told == [("Hello.", 0, False), ("", 1, True)]


async def test_scripted_calls_that_share_an_id_each_keep_their_own_result() -> None:
    driver = scripted(
        ScenarioStep.tool_calls(call("add", id="x", n=1), call("add", id="x", n=2)),
        ScenarioStep.final("ok"),
    )
    state = await Agent(driver=driver, tools=[MockTool("add", lambda n: n)]).run("Go")

    assert [e.value for e in state.steps[0].step.tool_executions] == [1, 2]
