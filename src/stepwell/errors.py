"""The exception tree and the words for kinds of errors.

StepwellError
├── ConfigurationError (ValueError)      put together wrongly; raised at construction
│   ├── InvalidToolError                 a function or class that cannot become a tool
│   └── DefinitionError (stepwell.specs) a file that defines an agent or a skill is wrong
├── SyncInsideLoopError (RuntimeError)   a *_sync method called inside a running event loop
├── AgentNotFoundError (LookupError)     a name that no registry knows
├── ToolError                            raised only where a caller asked for exceptions
│   ├── ToolNotFoundError (LookupError)
│   ├── InvalidToolArgumentsError (ValueError)
│   └── ToolExecutionError
├── ModelError                           a model turn failed, with its kind
├── HookError                            a hook raised; names the hook and the trigger
├── DriverError                          a driver broke its contract
├── SandboxError                         a command can't be confined as its policy asks
│   └── NoSandboxError                   nothing on this machine can confine commands
├── BroadcastError (stepwell.broadcasting) an envelope could not be sent
├── ClientInputError (stepwell.broadcasting) what a client sent can't become a state
├── SerializationError (ValueError)      a state can't be stored, or a stored one can't be loaded
├── RunNotCompletedError                 state.unwrap() of a run that did not complete
│   └── LimitReachedError                the builder chose at_limit="raise"
├── SessionError (stepwell.sessions)     a request that cannot be fulfilled; nothing was changed
├── McpError (stepwell.capabilities.mcp) a request to an MCP server failed
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

    @property
    def urgency(self) -> int:
        """0 is the most urgent: of several errors in one step that type is judged.

        What holds for the next turn whatever the step did (a rate limit, no time, a broken model)
        comes before what the model can put right by itself.
        """
        return _URGENCY[self]


_URGENCY = {
    error_type: place
    for place, error_type in enumerate(
        (
            ErrorType.RATE_LIMIT,
            ErrorType.TIMEOUT,
            ErrorType.MODEL,
            ErrorType.VALIDATION,
            ErrorType.TOOL,
            ErrorType.UNKNOWN,
        )
    )
}


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
        super().__init__(f"no agent is registered as {name!r}; known: {_join_names(known)}")
        self.name = name


class ToolError(StepwellError):
    """A tool call failed; raised only where a caller asked for exceptions."""

    error_type = ErrorType.TOOL


class ToolNotFoundError(ToolError, LookupError):
    """No tool has that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"Tool {name!r} not found. Available tools: {_join_names(known)}.")
        self.name = name


class InvalidToolArgumentsError(ToolError, ValueError):
    """The arguments of a tool call do not fit the tool's schema."""

    error_type = ErrorType.VALIDATION


class ToolExecutionError(ToolError):
    """A tool raised; the original exception is the cause."""

    def __init__(self, tool_name: str, message: str) -> None:
        super().__init__(f"Tool {tool_name!r} failed: {message}")
        self.tool_name = tool_name


class ModelErrorKind(StrEnum):
    """What went wrong in a model turn."""

    CONNECT = "connect"
    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"
    INCOMPLETE_STREAM = "incomplete_stream"
    MALFORMED_RESPONSE = "malformed_response"
    EMPTY_RESPONSE = "empty_response"
    TOO_LARGE = "too_large"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    OVERLOADED = "overloaded"
    SERVER = "server"
    AUTHENTICATION = "authentication"
    NOT_FOUND = "not_found"
    INVALID_REQUEST = "invalid_request"
    CONTEXT_TOO_LONG = "context_too_long"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may well succeed a little later."""
        return self in _RETRYABLE

    @property
    def error_type(self) -> ErrorType:
        """The kind as the error policy knows it."""
        return _ERROR_TYPES.get(self, ErrorType.MODEL)


_RETRYABLE = frozenset(
    {
        ModelErrorKind.CONNECT,
        ModelErrorKind.TIMEOUT,
        ModelErrorKind.DISCONNECTED,
        ModelErrorKind.INCOMPLETE_STREAM,
        ModelErrorKind.MALFORMED_RESPONSE,
        ModelErrorKind.EMPTY_RESPONSE,
        ModelErrorKind.RATE_LIMIT,
        ModelErrorKind.OVERLOADED,
        ModelErrorKind.SERVER,
    }
)

_ERROR_TYPES = {
    ModelErrorKind.TIMEOUT: ErrorType.TIMEOUT,
    ModelErrorKind.RATE_LIMIT: ErrorType.RATE_LIMIT,
    ModelErrorKind.OVERLOADED: ErrorType.RATE_LIMIT,
}


class ModelError(StepwellError):
    """A model turn failed.

    ``retryable`` says whether asking again may help, None if nobody knows. ``provider_text`` is
    what the provider said, ``usage`` and ``cost`` what the failed turn was charged for.

    >>> ModelError("429 from acme", kind="rate_limit", retry_after=2.0).retryable
    True
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind | str | None = None,
        error_type: ErrorType | str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        status: int | None = None,
        request_id: str | None = None,
        provider_text: str | None = None,
        usage: Any = None,
        cost: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.kind = None if kind is None else ModelErrorKind(kind)
        known = ErrorType.MODEL if self.kind is None else self.kind.error_type
        self.error_type = known if error_type is None else ErrorType(error_type)
        if retryable is None and self.kind is not None:
            retryable = self.kind.is_retryable
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status
        self.request_id = request_id
        self.provider_text = provider_text
        self.usage = usage
        self.cost = cost


class HookError(StepwellError):
    """A hook raised; the cause is its exception, the state what earlier hooks made."""

    error_type = ErrorType.UNKNOWN

    def __init__(self, hook: str, trigger: str, cause: Exception, state: Any = None) -> None:
        super().__init__(f"hook {hook!r} raised at {trigger}: {describe(cause)}")
        self.hook = hook
        self.state = state


class DriverError(StepwellError):
    """A driver broke its contract."""

    error_type = ErrorType.UNKNOWN


class SandboxError(StepwellError):
    """A command can't be confined as its policy asks, so it was not run."""


class NoSandboxError(SandboxError):
    """Nothing on this machine can confine commands; the message says what to install."""


class SerializationError(StepwellError, ValueError):
    """A state can't be stored, or what was stored can't be loaded; the message names the field."""


class RunNotCompletedError(StepwellError):
    """``state.unwrap()`` was called on a run that did not complete; the state is kept."""

    def __init__(self, message: str, state: Any) -> None:
        super().__init__(message)
        self.state = state


class LimitReachedError(RunNotCompletedError):
    """A limit ended the run and the builder chose ``at_limit="raise"``; the state is kept."""


def error_type_of(error: BaseException, default: ErrorType) -> ErrorType:
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


def describe(error: BaseException) -> str:
    """``ValueError: text``, or only the class name when there is no text."""
    text = text_of(error)
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "(none)"
