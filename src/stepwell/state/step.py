"""What one step did: the response, the tool executions, the errors, and the record around it."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from stepwell.continuation import ContinuationOutcome
from stepwell.errors import ErrorType, ModelError
from stepwell.messages import (
    FinishReason,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)
from stepwell.state.errors import ErrorInfo


class ToolOutcome(StrEnum):
    """How a tool call ended. Only raised, invalid and timed_out count as errors."""

    COMPLETED = "completed"
    FAILED = "failed"
    RAISED = "raised"
    INVALID = "invalid"
    TIMED_OUT = "timed_out"
    NOT_FOUND = "not_found"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    NOT_RUN = "not_run"
    PENDING = "pending"
    UNKNOWN = "unknown"
    """It began, and then the process died: nobody knows whether it took effect."""


class ToolExecution(Struct, frozen=True, kw_only=True, gc=False):
    """One tool call and what came of it. ``value`` is JSON data, ``text`` is what the model sees.

    ``failed`` is an expected failure that the tool returned as a value; it is not an error.
    """

    call: ToolCall
    outcome: ToolOutcome
    text: str
    started_at: datetime
    completed_at: datetime
    duration_seconds: float = 0.0
    value: Any = None
    error: ErrorInfo | None = None
    usage: Usage = Usage()
    cost: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether the tool did what it was asked."""
        return self.outcome is ToolOutcome.COMPLETED

    @property
    def is_error(self) -> bool:
        """Whether the model is shown this result as an error."""
        outcome = self.outcome
        return outcome is not ToolOutcome.COMPLETED and outcome is not ToolOutcome.PENDING

    @property
    def was_blocked(self) -> bool:
        """Whether a hook refused the call."""
        return self.outcome is ToolOutcome.BLOCKED


class StepType(StrEnum):
    """What a step was, derived from its content."""

    TOOL_EXECUTION = "tool_execution"
    FINAL_RESPONSE = "final_response"
    ERROR = "error"


class AgentStep(Struct, frozen=True, kw_only=True, gc=False):
    """One turn of the model with the tool executions it led to.

    ``messages`` are what the step added to the conversation: the response, then the results.
    ``failures`` are errors of the step itself; ``errors`` lists them with the tools' errors.
    """

    messages: tuple[Message, ...] = ()
    tool_executions: tuple[ToolExecution, ...] = ()
    failures: tuple[ErrorInfo, ...] = ()
    usage: Usage = Usage()
    cost: float = 0.0
    finish_reason: FinishReason | None = None
    model: str | None = None
    metadata: Mapping[str, Any] = {}
    output: Any | UnsetType = UNSET
    """The answer as JSON data, where an output type was asked for; None if it did not fit."""

    @classmethod
    def failed(cls, error: BaseException, default: ErrorType = ErrorType.MODEL) -> "AgentStep":
        """A step in which nothing but an error happened."""
        failures = (ErrorInfo.from_exception(error, default),)
        if not isinstance(error, ModelError):
            return cls(failures=failures)
        usage = error.usage if isinstance(error.usage, Usage) else Usage()
        return cls(failures=failures, usage=usage, cost=error.cost)

    @property
    def response(self) -> Message | None:
        """The model's message, if there was one."""
        messages = self.messages
        return messages[0] if messages and messages[0].role is Role.ASSISTANT else None

    @property
    def is_incomplete(self) -> bool:
        """Whether the run ended while the model still wrote its answer."""
        return self.response is not None and self.response.is_incomplete

    def marked_incomplete(self) -> "AgentStep":
        """The same step, with the model's message marked as one that was cut."""
        marked = tuple(m.marked_incomplete() if m.is_assistant() else m for m in self.messages)
        return replace(self, messages=marked)

    @property
    def text(self) -> str:
        """What the model said in this step."""
        response = self.response
        return "" if response is None else response.text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls the model asked for; in a step without a model turn, those that ran again."""
        messages = self.messages
        if messages and messages[0].role is Role.ASSISTANT:
            return messages[0].tool_calls
        return tuple([execution.call for execution in self.tool_executions])

    @property
    def has_tool_calls(self) -> bool:
        """Whether the model asked for tools."""
        return bool(self.tool_calls)

    @property
    def errors(self) -> tuple[ErrorInfo, ...]:
        """Errors of the step itself and of its tools."""
        if not self.has_errors:
            return ()
        of_tools = [e.error for e in self.tool_executions if e.error is not None]
        return (*self.failures, *of_tools)

    @property
    def most_urgent_error(self) -> ErrorInfo | None:
        """The error that stands for the step: the first of the most urgent type."""
        return min(self.errors, key=lambda error: error.type.urgency, default=None)

    @property
    def is_empty(self) -> bool:
        """Whether the model's turn gave nothing: no text, no call, no file and no error."""
        if self.tool_executions or self.has_errors:
            return False
        parts = () if self.response is None else self.response.parts
        return not any(
            bool(part.text.strip()) if isinstance(part, TextPart) else True
            for part in parts
            if not isinstance(part, ThinkingPart)
        )

    @property
    def was_cut(self) -> bool:
        """Whether the model's answer was cut off, by a limit on its length or by a filter."""
        reason = self.finish_reason
        if reason is not FinishReason.LENGTH and reason is not FinishReason.CONTENT_FILTER:
            return False
        return not self.tool_calls

    @property
    def has_errors(self) -> bool:
        """Whether anything in this step counts as an error."""
        if self.failures:
            return True
        for execution in self.tool_executions:  # noqa: SIM110 - asked several times per step
            if execution.error is not None:
                return True
        return False

    @property
    def step_type(self) -> StepType:
        """Error if anything failed, else tool execution if tools were called, else final."""
        if self.has_errors:
            return StepType.ERROR
        return StepType.TOOL_EXECUTION if self.has_tool_calls else StepType.FINAL_RESPONSE


class StepExecution(Struct, frozen=True, kw_only=True, gc=False):
    """A recorded step: its number, its time, and the decision that followed it."""

    number: int
    step: AgentStep
    outcome: ContinuationOutcome
    started_at: datetime
    completed_at: datetime
    duration_seconds: float
