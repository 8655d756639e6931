"""Steps: their type, their errors, and what they said."""

from datetime import UTC, datetime

import pytest

from stepwell import Message, ToolCall
from stepwell.errors import ErrorType
from stepwell.state import AgentStep, ErrorInfo, StepType, ToolExecution, ToolOutcome

AT = datetime(2026, 1, 1, tzinfo=UTC)
CALL = ToolCall(id="1", name="look")
TOOL_ERROR = ErrorInfo(
    type=ErrorType.TOOL, exception="ValueError", message="no door", tool_name="look"
)
STEP_ERROR = ErrorInfo(type=ErrorType.MODEL, exception="ModelError", message="down")


def execution(outcome=ToolOutcome.COMPLETED, error=None):
    return ToolExecution(
        call=CALL, outcome=outcome, text="", started_at=AT, completed_at=AT, error=error
    )


def called(*executions):
    return AgentStep(messages=(Message.assistant("", [CALL]),), tool_executions=executions)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (AgentStep(messages=(Message.assistant("Done."),)), StepType.FINAL_RESPONSE),
        (called(execution()), StepType.TOOL_EXECUTION),
        (called(), StepType.TOOL_EXECUTION),
        (called(execution(ToolOutcome.RAISED, TOOL_ERROR)), StepType.ERROR),
        (AgentStep(messages=(Message.assistant("x"),), failures=(STEP_ERROR,)), StepType.ERROR),
    ],
)
def test_the_type_is_derived_and_error_wins(step, expected):
    assert step.step_type is expected


def test_step_types_are_the_wire_words():
    assert [str(kind) for kind in StepType] == ["tool_execution", "final_response", "error"]


def test_b078_tool_errors_and_step_errors_are_both_listed():
    step = AgentStep(
        messages=(Message.assistant("", [CALL]),),
        tool_executions=(execution(), execution(ToolOutcome.RAISED, TOOL_ERROR)),
        failures=(STEP_ERROR,),
    )

    assert step.errors == (STEP_ERROR, TOOL_ERROR)
    assert step.has_errors


@pytest.mark.parametrize(
    "outcome", [ToolOutcome.FAILED, ToolOutcome.NOT_FOUND, ToolOutcome.BLOCKED]
)
def test_expected_failures_are_shown_as_errors_to_the_model_but_are_none(outcome):
    step = called(execution(outcome))

    assert step.tool_executions[0].is_error
    assert not step.tool_executions[0].succeeded
    assert not step.has_errors


def test_a_failed_step_keeps_class_text_and_kind_of_the_exception():
    (error,) = AgentStep.failed(TimeoutError("slow")).errors

    assert error == ErrorInfo(type=ErrorType.TIMEOUT, exception="TimeoutError", message="slow")
    assert error.text == "TimeoutError: slow"


def test_an_error_without_text_is_told_by_its_class():
    assert ErrorInfo.from_exception(ValueError(), ErrorType.TOOL).text == "ValueError"


def test_what_the_model_said_is_its_first_message():
    step = AgentStep(messages=(Message.assistant("I look.", [CALL]),))

    assert step.text == "I look."
    assert step.tool_calls == (CALL,)
    assert step.has_tool_calls


def test_a_step_without_messages_said_nothing():
    step = AgentStep()

    assert (step.response, step.text, step.tool_calls) == (None, "", ())
    assert not step.has_tool_calls
