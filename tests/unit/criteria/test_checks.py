"""Criteria that look at the newest step."""

import pytest

from stepwell import (
    AgentState,
    ConfigurationError,
    ContinuationDecision,
    FinishReason,
    Message,
    StopReason,
    ToolCall,
)
from stepwell.criteria import FinishReasonCheck, ResponseContentCheck, ToolCallPresenceCheck
from stepwell.messages import ToolResult
from stepwell.state import AgentStep

FORBID, REQUEST, ALLOW_STOP, ALLOW = ContinuationDecision

SAID = AgentStep(messages=(Message.assistant("Done."),), finish_reason=FinishReason.STOP)
CALLED = AgentStep(
    messages=(
        Message.assistant("I look.", [ToolCall(id="1", name="look")]),
        Message.tool(ToolResult(call_id="1", tool_name="look", content="a door")),
    ),
    finish_reason=FinishReason.TOOL_CALLS,
)


def test_b021_a_step_without_tool_calls_allows_stopping(state_after):
    vote = ToolCallPresenceCheck().evaluate(state_after(SAID))

    assert vote.decision is ALLOW_STOP
    assert vote.context == {"tool_calls": 0}


def test_b021_a_step_with_tool_calls_asks_to_go_on(state_after):
    vote = ToolCallPresenceCheck().evaluate(state_after(CALLED))

    assert vote.decision is REQUEST
    assert vote.context == {"tool_calls": 1}
    assert vote.reason == "the model called 1 tool"


def test_b021_only_the_newest_step_counts(state_after):
    assert ToolCallPresenceCheck().evaluate(state_after(CALLED, SAID)).decision is ALLOW_STOP
    assert ToolCallPresenceCheck().evaluate(state_after(SAID, CALLED)).decision is REQUEST


def test_b021_before_any_step_it_asks_to_go_on(state_after):
    assert ToolCallPresenceCheck().evaluate(AgentState.empty()).decision is REQUEST
    assert ToolCallPresenceCheck().evaluate(state_after()).decision is REQUEST


def test_b022_a_listed_finish_reason_forbids_and_shows_the_list(state_after):
    check = FinishReasonCheck(["length", FinishReason.CONTENT_FILTER])
    state = state_after(AgentStep(finish_reason=FinishReason.LENGTH))

    vote = check.evaluate(state)

    assert vote.decision is FORBID
    assert vote.stop_reason is StopReason.FINISH_REASON
    assert vote.context == {"finish_reason": "length", "stop_on": ["length", "content_filter"]}


@pytest.mark.parametrize(
    ("stop_on", "found"),
    [(["length"], FinishReason.STOP), (["length"], None), ([], FinishReason.LENGTH)],
)
def test_b022_other_missing_or_unlisted_finish_reasons_have_no_effect(state_after, stop_on, found):
    vote = FinishReasonCheck(stop_on).evaluate(state_after(AgentStep(finish_reason=found)))

    assert vote.decision is ALLOW
    assert vote.stop_reason is None


def test_b022_no_step_yet_has_no_effect():
    assert FinishReasonCheck(["stop"]).evaluate(AgentState.empty()).decision is ALLOW


def test_an_unknown_finish_reason_is_a_construction_error_that_lists_the_known():
    with pytest.raises(ConfigurationError, match="tool_calls, length"):
        FinishReasonCheck(["boredom"])


def test_b023_before_any_response_the_predicate_is_not_called(state_after):
    seen = []
    check = ResponseContentCheck(lambda message: bool(seen.append(message)))

    assert check.evaluate(AgentState.empty()).decision is ALLOW
    assert check.evaluate(state_after()).decision is ALLOW
    assert seen == []


@pytest.mark.parametrize(("holds", "decision"), [(True, REQUEST), (False, ALLOW_STOP)])
def test_b023_the_predicate_decides_between_request_and_stop(state_after, holds, decision):
    vote = ResponseContentCheck(lambda message: holds).evaluate(state_after(SAID))

    assert vote.decision is decision


def test_b023_only_the_last_message_is_examined(state_after):
    seen = []
    ResponseContentCheck(lambda message: bool(seen.append(message.text))).evaluate(
        state_after(SAID, CALLED)
    )

    assert seen == ["a door"]


def test_b023_blanks_are_not_empty(state_after):
    blank = AgentStep(messages=(Message.assistant("   "),))
    is_empty = ResponseContentCheck(lambda message: not message.text)

    assert is_empty.evaluate(state_after(blank)).decision is ALLOW_STOP
