"""The exception tree and the words for kinds of errors.

StepwellError
├── ConfigurationError (ValueError)      put together wrongly; raised at construction
│   └── InvalidToolError                 a function or class that cannot become a tool
├── SyncInsideLoopError (RuntimeError)   a *_sync method called inside a running event loop
├── AgentNotFoundError (LookupError)     a name that no registry knows
├── ToolError                            raised only where a caller asked for exceptions
│   ├── ToolNotFoundError (LookupError)
│   ├── InvalidToolArgumentsError (ValueError)
│   └── ToolExecutionError
├── ModelError                           a model turn failed, with its kind
├── HookError                            a hook raised; names the hook and the trigger
├── DriverError                          a driver broke its contract
├── RunNotCompletedError                 state.unwrap() of a run that did not complete
│   └── LimitReachedError                the builder chose at_limit="raise"
└── AgentStop (stepwell.continuation)    ends the run with a reason; not an error
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any


class ErrorType(StrEnum):
    """What kind of thing failed; the error policy handles each kind on its own."""

    TOOL = "tool"
    MODEL = "model"
    VALIDATION = "validation"
    RATE_LIMIT = "rate_limit"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"


class StepwellError(Exception):
    """Root of everything Stepwell raises."""


class ConfigurationError(StepwellError, ValueError):
    """Something was put together wrongly; the message says what to change."""


class InvalidToolError(ConfigurationError):
    """A function or class cannot become a tool."""


class SyncInsideLoopError(StepwellError, RuntimeError):
    """A ``*_sync`` method was called inside a running event loop."""


class AgentNotFoundError(StepwellError, LookupError):
    """No agent is registered under that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no agent is registered as {name!r}; known: {_listed(known)}")
        self.name = name


class ToolError(StepwellError):
    """A tool call failed; raised only where a caller asked for exceptions."""

    error_type = ErrorType.TOOL


class ToolNotFoundError(ToolError, LookupError):
    """No tool has that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"Tool {name!r} not found. Available tools: {_listed(known)}.")
        self.name = name


class InvalidToolArgumentsError(ToolError, ValueError):
    """The arguments of a tool call do not fit the tool's schema."""

    error_type = ErrorType.VALIDATION


class ToolExecutionError(ToolError):
    """A tool raised; the original exception is the cause."""

    def __init__(self, tool_name: str, message: str) -> None:
        super().__init__(f"Tool {tool_name!r} failed: {message}")
        self.tool_name = tool_name


class ModelError(StepwellError):
    """A model turn failed."""

    def __init__(
        self,
        message: str,
        *,
        error_type: ErrorType | str = ErrorType.MODEL,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.error_type = ErrorType(error_type)
        self.retry_after = retry_after


class HookError(StepwellError):
    """A hook raised; the cause is its exception, the state what earlier hooks made."""

    error_type = ErrorType.UNKNOWN

    def __init__(self, hook: str, trigger: str, cause: Exception, state: Any = None) -> None:
        super().__init__(f"hook {hook!r} raised at {trigger}: {described(cause)}")
        self.hook = hook
        self.state = state


class DriverError(StepwellError):
    """A driver broke its contract."""

    error_type = ErrorType.UNKNOWN


class RunNotCompletedError(StepwellError):
    """``state.unwrap()`` was called on a run that did not complete; the state is kept."""

    def __init__(self, message: str, state: Any) -> None:
        super().__init__(message)
        self.state = state


class LimitReachedError(RunNotCompletedError):
    """A limit ended the run and the builder chose ``at_limit="raise"``; the state is kept."""


def classified(error: BaseException, default: ErrorType) -> ErrorType:
    """The kind of an exception, judged by its class."""
    declared = getattr(error, "error_type", None)
    if isinstance(declared, ErrorType):
        return declared
    return ErrorType.TIMEOUT if isinstance(error, TimeoutError) else default


def text_of(error: BaseException) -> str:
    """The text of an exception, also of one whose own ``__str__`` raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - foreign code; the failure it describes must not be lost
        return "(its text cannot be shown)"


def described(error: BaseException) -> str:
    """``ValueError: text``, or only the class name when there is no text."""
    text = text_of(error)
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "(none)"
