"""What happened in a run: frozen events, named in the past tense.

The order in which they come is drawn in docs/reference/events.md and asserted by the tests.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from stepwell.continuation import AgentStatus, ContinuationOutcome, StopReason
from stepwell.messages import FinishReason, Usage


class EventSource(Struct, frozen=True, kw_only=True):
    """Whose event it is; bound once per run."""

    agent_id: str
    parent_agent_id: str | None
    execution_id: str


class AgentEvent(Struct, frozen=True):
    """Root of all events: whose it is and when it happened."""

    source: EventSource
    at: datetime

    @property
    def agent_id(self) -> str:
        """The agent it happened to."""
        return self.source.agent_id

    @property
    def parent_agent_id(self) -> str | None:
        """The agent that spawned this one, if any."""
        return self.source.parent_agent_id

    @property
    def execution_id(self) -> str:
        """The execution it happened in."""
        return self.source.execution_id


class AgentExecutionStarted(AgentEvent, frozen=True, kw_only=True):
    """An execution began, or was taken up again."""

    message_count: int
    available_tools: tuple[str, ...]
    resumed: bool


class AgentStepStarted(AgentEvent, frozen=True, kw_only=True):
    """A step began; its number is the count of completed steps plus one."""

    step_number: int
    message_count: int
    available_tools: tuple[str, ...]


class InferenceRequestStarted(AgentEvent, frozen=True, kw_only=True):
    """The model is called; this is the request after the hooks."""

    inference_id: str
    step_number: int
    model: str
    message_count: int
    tool_count: int


class InferenceRetryScheduled(AgentEvent, frozen=True, kw_only=True):
    """A model turn failed before any output and is asked again after a wait.

    ``attempt`` is the number of the next attempt. A question apart, such as a critic's, has no
    ``inference_id``.
    """

    inference_id: str | None
    step_number: int
    model: str
    attempt: int
    max_attempts: int
    delay_seconds: float
    error: str
    error_kind: str | None


class InferenceResponseReceived(AgentEvent, frozen=True, kw_only=True):
    """The model answered; this is the response after the hooks."""

    inference_id: str
    step_number: int
    model: str
    text: str
    tool_call_count: int
    finish_reason: FinishReason | None
    usage: Usage


class StreamEventReceived(AgentEvent, frozen=True, kw_only=True):
    """A piece of text arrived; the last one of a response says so and may be empty."""

    step_number: int
    content: str
    chunk_index: int
    is_complete: bool


class ThinkingReceived(AgentEvent, frozen=True, kw_only=True):
    """A piece of the model's reasoning arrived; only while the response is streamed."""

    step_number: int
    content: str


class ToolCallStarted(AgentEvent, frozen=True, kw_only=True):
    """A tool is about to run."""

    tool: str
    args: Mapping[str, Any]
    call_id: str
    step_number: int


class ToolCallProgressed(AgentEvent, frozen=True, kw_only=True):
    """A running tool said how far it is."""

    tool: str
    call_id: str
    message: str
    fraction: float | None


class ToolCallCompleted(AgentEvent, frozen=True, kw_only=True):
    """A tool call has its result; ``error`` is the text of a failure.

    ``outcome`` is the word of ``ToolOutcome``: one that waits for a person is ``pending``. ``note``
    is a note to the model next to the value, such as that it repeats itself; an ``error`` has it.
    """

    tool: str
    call_id: str
    success: bool
    error: str | None
    value: Any
    started_at: datetime
    completed_at: datetime
    duration_ms: float
    outcome: str = "completed"
    note: str = ""


class ToolCallBlocked(AgentEvent, frozen=True, kw_only=True):
    """A hook refused a tool call before it ran."""

    tool: str
    args: Mapping[str, Any]
    call_id: str
    reason: str


class AgentStepCompleted(AgentEvent, frozen=True, kw_only=True):
    """A step ended, well or not; its number counts this step."""

    step_number: int
    has_tool_calls: bool
    error_count: int
    errors: tuple[str, ...]
    usage: Usage
    finish_reason: FinishReason | None
    duration_ms: float


class TokenUsageReported(AgentEvent, frozen=True, kw_only=True):
    """What a step used, when it used anything."""

    operation: str
    usage: Usage
    total: Usage


class ContinuationEvaluated(AgentEvent, frozen=True, kw_only=True):
    """The decision of one iteration, with every vote, and the status that the run has by it."""

    step_number: int
    outcome: ContinuationOutcome
    status: AgentStatus | None = None
    """The run's status; it may be ``paused`` where the outcome alone means ``stopped``."""

    def __str__(self) -> str:
        verdict = (
            f"CONTINUE (by {self.outcome.resolved_by})"
            if self.outcome.should_continue
            else f"STOP ({self.outcome.stop_reason} by {self.outcome.resolved_by})"
        )
        return f"Agent [{self.agent_id[:8]}] step {self.step_number}: {verdict}"


class AgentStateUpdated(AgentEvent, frozen=True, kw_only=True):
    """A new state was recorded."""

    status: AgentStatus
    step_count: int


class AgentFailed(AgentEvent, frozen=True, kw_only=True):
    """The run failed; a terminal ``AgentFinished`` follows.

    ``exception`` is the live exception when there was one, for listeners that log tracebacks.
    """

    status: AgentStatus
    steps_completed: int
    exception_type: str
    error: str
    exception: BaseException | None = None


class AgentFinished(AgentEvent, frozen=True, kw_only=True):
    """The run ended; the only terminal event, always with the final status."""

    status: AgentStatus
    stop_reason: StopReason | None
    outcome: ContinuationOutcome | None
    total_steps: int
    total_usage: Usage
    duration_ms: float
    final_response: str | None = None
    waits_for: tuple[Mapping[str, Any], ...] = ()
    """What a paused run waits for: kind, prompt, call_id and tool_name of each."""


class SubagentSpawning(AgentEvent, frozen=True, kw_only=True):
    """A subagent is about to run, for a call of the agent whose event this is."""

    name: str
    prompt: str
    """Its first 100 characters; the subagent's first message has all of it."""
    depth: int
    max_depth: int
    call_id: str
    child_agent_id: str


class SubagentCompleted(AgentEvent, frozen=True, kw_only=True):
    """A subagent ended, or waits for a person."""

    name: str
    status: AgentStatus
    steps: int
    usage: Usage
    depth: int
    max_depth: int
    call_id: str
    child_agent_id: str
