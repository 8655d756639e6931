"""Answers that were cut off or are empty end no run as completed."""

import re
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentStatus,
    ContinuationDecision,
    ErrorPolicy,
    FinishReason,
    ModelResponse,
    ModelSettings,
    StopReason,
    ToolCall,
    Usage,
    make_hook,
)
from stepwell.continuation import ContinuationOutcome
from stepwell.drivers import ReActDriver
from stepwell.serialization import AgentStateSerializer
from stepwell.testing import MockTool, ScriptedModel, call


def cut(text: str = "Half an ans", reason: str = "length", tokens: int = 7) -> ModelResponse:
    usage = Usage(input_tokens=3, output_tokens=tokens)
    return ModelResponse(text=text, finish_reason=FinishReason(reason), usage=usage)


@pytest.mark.parametrize(
    ("response", "settings", "says"),
    [
        (cut(tokens=256), {"max_tokens": 256}, "cut off at max_tokens=256 of the model settings"),
        (cut(tokens=0), {"max_tokens": 256}, "cut off at max_tokens=256 of the model settings"),
        (cut(tokens=90), {"max_tokens": 256}, "after 90 output tokens.*context is full"),
        (cut(tokens=4096), {}, "after 4096 output tokens"),
        (cut(reason="content_filter"), {}, "content filter cut the answer off"),
        (cut(text=""), {}, "after 7 output tokens"),
    ],
)
async def test_a_cut_answer_stops_the_run_and_says_which_limit_cut_it(
    response: ModelResponse, settings: dict[str, Any], says: str
) -> None:
    model = ScriptedModel([response, "never"])
    state = await Agent(model, settings=ModelSettings(**settings)).run("Tell me all")

    assert (state.status, len(model.requests)) == (AgentStatus.STOPPED, 1)
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.FINISH_REASON
    assert (state.final_response or "") == response.text
    explanation = state.explain().replace("\n", " ")
    assert "the answer was cut off (reason finish_reason, status stopped)" in explanation
    assert re.search(says, explanation)
    assert "What to change: " in explanation


async def test_the_status_of_a_cut_answer_is_stored_with_the_state_and_its_decision() -> None:
    state = await Agent(ScriptedModel([cut()])).run("Go")
    serializer = AgentStateSerializer()
    again = serializer.deserialize(serializer.serialize(state))

    assert again.status is AgentStatus.STOPPED
    assert state.stop is not None
    assert ContinuationOutcome.from_dict(state.stop.to_dict()).status is AgentStatus.STOPPED


async def test_a_typed_output_that_was_cut_off_is_still_asked_for_again() -> None:
    model = ScriptedModel([cut('{"result": [1, 2'), '{"result": [1, 2]}'])
    agent = Agent(model, output_type=list[int], criteria=[AlwaysAllows()])
    state = await agent.run("Go")

    assert (state.status, state.output) == (AgentStatus.COMPLETED, [1, 2])


class AlwaysAllows:
    """A criterion of one's own, so that votes are counted again before each step."""

    def evaluate(self, state: Any) -> Any:
        return ContinuationDecision.ALLOW


async def test_a_final_answer_of_react_that_was_cut_off_stops_the_run() -> None:
    model = ScriptedModel(['{"thought": "Easy.", "type": "final_answer"}', cut()])
    state = await Agent(driver=ReActDriver(model, final_via_inference=True)).run("Go")

    assert (state.status, state.final_response) == (AgentStatus.STOPPED, "Half an ans")


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_an_empty_answer_is_asked_for_once_more(text: str) -> None:
    model = ScriptedModel([call("look"), ModelResponse(text=text), "All seen."])
    state = await Agent(model, tools=[MockTool.returning("look", "seen")]).run("Look")

    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "All seen.")
    instructions = [request.instruction for request in model.requests]
    assert instructions[:2] == [None, None]
    assert instructions[2] is not None
    assert "Your last reply was empty" in instructions[2].text
    vote = state.steps[1].outcome.resolving_evaluation
    assert vote is not None
    assert "it is asked once more" in vote.reason


async def test_a_second_empty_answer_fails_the_run_with_an_explanation() -> None:
    model = ScriptedModel([ModelResponse(), ModelResponse(), "never"])
    state = await Agent(model).run("Go")

    assert (state.status, state.step_count) == (AgentStatus.FAILED, 2)
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.ERROR
    assert "the model's answer is empty, and so was the one before" in state.explain()
    assert "use another model" in state.explain()


async def test_a_hook_that_wants_another_step_gets_it_after_an_empty_answer() -> None:
    hook = make_hook(
        "after_step",
        lambda c: c.request_step("more") if c.state.step_number < 4 else None,
    )
    model = ScriptedModel([ModelResponse(), ModelResponse(), ModelResponse(), "At last."])
    state = await Agent(model, hooks=[hook]).run("Go")

    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "At last.")


@pytest.mark.parametrize(
    ("settings", "limit"), [({"max_tokens": 256}, "256"), ({}, "99")], ids=["set", "not set"]
)
@pytest.mark.parametrize("arguments", [{"malformed": '{"text": "lo'}, {"arguments": {}}])
async def test_arguments_that_were_cut_off_are_told_to_the_model(
    settings: dict[str, Any], limit: str, arguments: dict[str, Any]
) -> None:
    def write(text: str) -> str:
        """Write."""
        raise AssertionError(text)

    turn = ModelResponse(
        tool_calls=(ToolCall(id="w", name="write", **arguments),),
        finish_reason=FinishReason.LENGTH,
        usage=Usage(output_tokens=99),
    )
    model = ScriptedModel([turn, "Shorter then."])
    agent = Agent(
        model,
        tools=[write],
        settings=ModelSettings(**settings),
        error_policy=ErrorPolicy.retry_tool_errors(3),
    )
    state = await agent.run("Write it all")
    told = model.requests[1].messages[-1].tool_result

    assert state.status is AgentStatus.COMPLETED
    assert told is not None
    assert told.is_error
    assert f"cut off at the output limit of {limit} tokens" in told.content
    assert "split the work into several smaller calls" in told.content


async def test_whole_calls_of_a_reply_that_was_cut_off_run() -> None:
    turn = ModelResponse(
        tool_calls=(ToolCall(id="l", name="look"),), finish_reason=FinishReason.LENGTH
    )
    state = await Agent(
        ScriptedModel([turn, "Seen."]), tools=[MockTool.returning("look", "a tree")]
    ).run("Look")

    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "Seen.")
