"""Results and responses that a ledger keeps."""

from datetime import UTC, datetime

import pytest

from stepwell.continuation import StopReason, StopSignal
from stepwell.errors import ErrorType, SerializationError
from stepwell.messages import FinishReason, ThinkingPart, ToolCall, Usage
from stepwell.models import ModelResponse
from stepwell.serialization.calls import (
    finished_from_json,
    finished_to_json,
    response_from_json,
    response_to_json,
)
from stepwell.state import (
    AgentState,
    ErrorInfo,
    Pending,
    PendingKind,
    ToolExecution,
    ToolOutcome,
)
from stepwell.tools.results import Finished

AT = datetime(2026, 11, 16, 12, 0, 0, 123456, tzinfo=UTC)
CALL = ToolCall(id="c1", name="look", arguments={"path": "a", "deep": {"x": [1, 2.5, None]}})


def ran(**changes: object) -> ToolExecution:
    given = {
        "call": CALL,
        "outcome": ToolOutcome.COMPLETED,
        "text": "found",
        "started_at": AT,
        "completed_at": AT,
        "duration_seconds": 0.25,
        **changes,
    }
    return ToolExecution(**given)  # type: ignore[arg-type]


def test_a_result_comes_back_as_it_was() -> None:
    finished = Finished(
        execution=ran(value={"a": (1, 2)}, usage=Usage(input_tokens=3), cost=0.5),
        metadata={"todo": ["one"]},
    )
    back = finished_from_json(finished_to_json(finished))
    assert back.execution == finished.execution
    assert back.metadata == {"todo": ["one"]}


def test_an_error_and_a_signal_come_back() -> None:
    error = ErrorInfo(type=ErrorType.TOOL, exception="ValueError", message="no", tool_name="look")
    signal = StopSignal(reason=StopReason.STOP_REQUESTED, message="enough", source="look")
    finished = Finished(execution=ran(outcome=ToolOutcome.RAISED, error=error), signal=signal)
    back = finished_from_json(finished_to_json(finished))
    assert (back.execution, back.signal) == (finished.execution, signal)


def test_a_question_keeps_the_state_of_a_subagent_that_waits() -> None:
    child = AgentState.empty(agent_id="child", at=AT).with_user_message("hm")
    asked = Pending(
        kind=PendingKind.QUESTION, prompt="Which?", call_id="c1", resumes=True, kept=child
    )
    finished = Finished(execution=ran(outcome=ToolOutcome.PENDING), waits_for=asked)
    assert finished_from_json(finished_to_json(finished)).waits_for == asked


def test_what_json_cannot_hold_is_named() -> None:
    with pytest.raises(SerializationError, match=r"the result of 'look'.*object"):
        finished_to_json(Finished(execution=ran(value=object())))


def test_a_response_comes_back_with_its_thinking_and_its_calls() -> None:
    response = ModelResponse(
        text="Let me look.",
        tool_calls=(CALL,),
        thinking=(ThinkingPart(text="hm"),),
        finish_reason=FinishReason.TOOL_CALLS,
        usage=Usage(input_tokens=3, output_tokens=4),
        cost=0.25,
        parts=(ThinkingPart(text="hm"), CALL),
    )
    assert response_from_json(response_to_json(response)) == response


def test_a_damaged_text_is_an_error_that_says_so() -> None:
    with pytest.raises(SerializationError, match="a stored response does not fit"):
        response_from_json('{"text": 3}')
    with pytest.raises(SerializationError, match="does not fit"):
        finished_from_json("{}")
