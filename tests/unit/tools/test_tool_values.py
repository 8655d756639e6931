"""The values with which a tool says more than a result."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    FunctionTool,
    InputRequired,
    StepwellError,
    StopReason,
    ToolContext,
    ToolFailure,
    ToolOutput,
    Usage,
)
from stepwell.state import PendingKind, ToolOutcome
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call
from tests.answers import answer_call


async def run_returning(value: Any) -> AgentState:
    model = ScriptedModel([call("act", id="c1"), "ok"], cost=0.5)
    return await Agent(model, tools=[MockTool.returning("act", value)]).run("Go")


async def test_an_expected_failure_is_shown_to_the_model_and_is_no_error() -> None:
    state = await run_returning(ToolFailure("file not found", {"path": "/x"}))
    execution = state.steps[0].step.tool_executions[0]
    result = state.messages[2].tool_result

    assert execution.outcome is ToolOutcome.FAILED
    assert (execution.succeeded, execution.is_error) == (False, True)
    assert execution.value == {"path": "/x"}
    assert execution.error is None
    assert result is not None
    assert (result.content, result.is_error) == ("Error: file not found", True)
    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, False)


async def test_the_details_of_a_failure_become_json_data_like_any_value() -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    state = await run_returning(ToolFailure("late", {"at": at, "tags": ("a",)}))
    value = state.steps[0].step.tool_executions[0].value

    assert json.loads(json.dumps(value)) == value
    assert value["tags"] == ["a"]


async def test_output_sets_metadata_and_its_usage_and_cost_flow_into_step_and_state() -> None:
    spent = Usage(input_tokens=100, output_tokens=50, cached_tokens=20)
    state = await run_returning(
        ToolOutput(value={"a": 1}, metadata={"seen": "yes"}, usage=spent, cost=0.25)
    )
    step = state.steps[0].step

    assert step.tool_executions[0].value == {"a": 1}
    assert json.loads(step.tool_executions[0].text) == {"a": 1}
    assert state.metadata["seen"] == "yes"
    assert step.usage == Usage(input_tokens=110, output_tokens=55, cached_tokens=20)
    assert step.cost == 0.75
    assert state.usage.total_tokens == 180
    assert state.cost == 1.25


async def test_metadata_of_an_output_leaves_other_keys_alone() -> None:
    agent = Agent(
        ScriptedModel([call("act"), "ok"]),
        tools=[MockTool.returning("act", ToolOutput(metadata={"b": 2}))],
    )
    state = await agent.run(agent.new_state("Go").with_metadata({"a": 1}))

    assert state.metadata == {"a": 1, "b": 2}


def asking_agent(model: ScriptedModel) -> Agent:
    def ask(question: str) -> InputRequired:
        return InputRequired(prompt=question, details={"options": ["yes", "no"]})

    return Agent(model, tools=[ask])


async def test_a_question_pauses_the_run_with_a_placeholder_result() -> None:
    recorder = EventRecorder()
    agent = asking_agent(ScriptedModel([call("ask", id="c1", question="Really?"), "ok"]))
    agent.wiretap(recorder)
    state = await agent.run("Go")

    assert state.status is AgentStatus.PAUSED
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.INPUT_REQUIRED
    assert not state.is_finished
    assert not agent.has_next_step(state)
    [waiting] = state.pending
    assert (waiting.kind, waiting.prompt) == (PendingKind.QUESTION, "Really?")
    assert (waiting.call_id, waiting.tool_name) == ("c1", "ask")
    assert waiting.details == {"options": ["yes", "no"]}
    execution = state.steps[0].step.tool_executions[0]
    assert (execution.outcome, execution.is_error) == (ToolOutcome.PENDING, False)
    assert state.messages[2].text == "Waiting for an answer."
    assert "Really?" in state.explain()
    assert recorder.names[-1] == "AgentFinished"


async def test_an_answer_becomes_the_result_and_the_run_goes_on_in_the_same_execution() -> None:
    model = ScriptedModel([call("ask", id="c1", question="Really?"), "Then I do it."])
    agent = asking_agent(model)
    paused = await agent.run("Go")
    answered = answer_call(paused, "c1", "yes")
    state = await agent.run(answered)
    assert paused.execution is not None
    assert state.execution is not None

    assert paused.messages[2].text == "Waiting for an answer."
    assert answered.pending == ()
    assert answered.status is AgentStatus.IN_PROGRESS
    assert [m.text for m in model.requests[1].messages][1:] == ["", "yes"]
    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "Then I do it.")
    assert state.execution.id == paused.execution.id
    assert [recorded.number for recorded in state.steps] == [1, 2]
    assert state.execution_count == 1


async def test_running_a_paused_state_without_an_answer_pauses_again_and_asks_no_model() -> None:
    model = ScriptedModel([call("ask", id="c1", question="Really?"), "never"])
    agent = asking_agent(model)
    state = await agent.run(await agent.run("Go"))

    assert state.status is AgentStatus.PAUSED
    assert [waiting.call_id for waiting in state.pending] == ["c1"]
    assert len(model.requests) == 1


async def test_two_questions_of_one_response_are_both_waited_for() -> None:
    calls = [call("ask", id="c1", question="A?"), call("ask", id="c2", question="B?")]
    agent = asking_agent(ScriptedModel([calls, "ok"]))
    paused = await agent.run("Go")
    half = answer_call(paused, "c2", "b")
    state = await agent.run(answer_call(half, "c1", "a"))

    assert [waiting.call_id for waiting in paused.pending] == ["c1", "c2"]
    assert half.status is AgentStatus.PAUSED
    assert [m.text for m in state.messages][2:4] == ["a", "b"]
    assert state.status is AgentStatus.COMPLETED


async def test_an_answer_to_nothing_says_what_is_waited_for() -> None:
    paused = await asking_agent(ScriptedModel([call("ask", id="c1", question="?")])).run("Go")

    with pytest.raises(StepwellError, match=r"'c9'.*waiting: q_\w+ \(question of call c1\)"):
        paused.with_answer("c9", "yes")


async def test_a_question_does_not_keep_the_other_calls_of_the_response_from_running() -> None:
    pay = MockTool.returning("pay", "paid")

    async def ask() -> InputRequired:
        return InputRequired(prompt="May I?", kind=PendingKind.APPROVAL)

    calls = [call("ask", id="c1"), call("pay", id="c2")]
    agent = Agent(ScriptedModel([calls]), tools=[FunctionTool(ask, parallel=False), pay])
    state = await agent.run("Go")

    assert len(pay.calls) == 1
    assert state.steps[0].step.tool_executions[1].outcome is ToolOutcome.COMPLETED
    assert state.pending[0].kind is PendingKind.APPROVAL
    assert len(state.messages) == 4


async def test_a_tool_may_decide_by_state_what_to_return() -> None:
    async def once(context: ToolContext) -> Any:
        if context.state.metadata.get("done"):
            return ToolFailure("only once")
        return ToolOutput(value="did it", metadata={"done": True})

    state = await Agent(ScriptedModel([call("once"), call("once"), "ok"]), tools=[once]).run("Go")

    texts = [recorded.step.tool_executions[0].text for recorded in state.steps[:2]]
    assert texts == ["did it", "Error: only once"]
