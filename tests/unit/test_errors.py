"""The exception tree, what its messages say, and how foreign exceptions are classified."""

import re

import pytest

from stepwell import errors
from stepwell.continuation import AgentStop
from stepwell.errors import (
    AgentNotFoundError,
    ConfigurationError,
    DriverError,
    ErrorType,
    HookError,
    InvalidToolArgumentsError,
    InvalidToolError,
    LimitReachedError,
    ModelError,
    RunNotCompletedError,
    StepwellError,
    SyncInsideLoopError,
    ToolError,
    ToolExecutionError,
    ToolNotFoundError,
    describe,
    error_type_of,
)


def defined_errors() -> set[str]:
    return {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, StepwellError)
    }


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = set(
        re.findall(r"^(?:[│├└─ ]+)?(\w*(?:Error|Stop))\b", errors.__doc__ or "", re.MULTILINE)
    )

    elsewhere = {
        "AgentStop",
        "BroadcastError",
        "ClientInputError",
        "DefinitionError",
        "McpError",
        "SessionError",
    }
    assert drawn == defined_errors() | elsewhere


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        (ConfigurationError, ValueError),
        (InvalidToolError, ConfigurationError),
        (SyncInsideLoopError, RuntimeError),
        (AgentNotFoundError, LookupError),
        (ToolNotFoundError, ToolError),
        (ToolNotFoundError, LookupError),
        (InvalidToolArgumentsError, ToolError),
        (InvalidToolArgumentsError, ValueError),
        (ToolExecutionError, ToolError),
        (LimitReachedError, RunNotCompletedError),
        (ModelError, StepwellError),
        (HookError, StepwellError),
        (DriverError, StepwellError),
        (AgentStop, StepwellError),
    ],
)
def test_errors_can_be_caught_by_their_parents(child: type, parent: type) -> None:
    assert issubclass(child, parent)
    assert issubclass(child, StepwellError)


def test_messages_name_the_thing_and_list_what_is_known() -> None:
    assert str(ToolNotFoundError("sub", ["b", "a"])) == (
        "Tool 'sub' not found. Available tools: a, b."
    )
    assert str(AgentNotFoundError("x", [])) == "no agent is registered as 'x'; known: (none)"
    assert str(HookError("audit", "before_step", ValueError("no"))) == (
        "hook 'audit' raised at before_step: ValueError: no"
    )
    assert "'pay'" in str(ToolExecutionError("pay", "no money"))


def test_errors_keep_what_a_handler_needs() -> None:
    limited = ModelError("slow down", error_type=ErrorType.RATE_LIMIT, retry_after=2.5)
    stopped = AgentStop("guard", "enough", source="me", context={"n": 1})

    assert (limited.error_type, limited.retry_after) == (ErrorType.RATE_LIMIT, 2.5)
    assert (stopped.signal.reason, stopped.signal.message) == ("guard", "enough")
    assert (stopped.signal.source, stopped.signal.context) == ("me", {"n": 1})
    assert str(stopped) == "enough"
    assert str(AgentStop()) == "stop_requested"
    assert LimitReachedError("text", "the state").state == "the state"


class OddError(Exception):
    error_type = "not an ErrorType"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("x"), ErrorType.TOOL),
        (TimeoutError(), ErrorType.TIMEOUT),
        (ModelError("x"), ErrorType.MODEL),
        (ModelError("x", error_type=ErrorType.RATE_LIMIT), ErrorType.RATE_LIMIT),
        (InvalidToolArgumentsError("x"), ErrorType.VALIDATION),
        (HookError("h", "t", ValueError()), ErrorType.UNKNOWN),
        (DriverError("x"), ErrorType.UNKNOWN),
        (OddError(), ErrorType.TOOL),
    ],
)
def test_exceptions_are_classified_by_class_or_by_default(
    error: Exception, kind: ErrorType
) -> None:
    assert error_type_of(error, ErrorType.TOOL) is kind


def test_the_kinds_are_the_wire_words() -> None:
    assert [str(kind) for kind in ErrorType] == [
        "tool",
        "model",
        "validation",
        "rate_limit",
        "timeout",
        "unknown",
    ]


def test_an_exception_without_text_is_described_by_its_class() -> None:
    assert describe(ValueError("no")) == "ValueError: no"
    assert describe(KeyError()) == "KeyError"
