"""The envelopes that user interfaces see: their types and payloads.

One stable schema: the JSON Schema and the TypeScript types in ``schema_files/`` are generated from
these classes. Words are wire words and never change; a new field may be added, none is taken away.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, json

from stepwell.continuation import ContinuationDecision, StopReason
from stepwell.journal.status import BroadcastStatus
from stepwell.messages import FinishReason, Usage
from stepwell.state import ToolOutcome


class EnvelopeType(StrEnum):
    """What an envelope tells."""

    AGENT_STATUS = "agent.status"
    AGENT_STEP_STARTED = "agent.step.started"
    AGENT_STEP_COMPLETED = "agent.step.completed"
    AGENT_TOOL_STARTED = "agent.tool.started"
    AGENT_TOOL_COMPLETED = "agent.tool.completed"
    AGENT_STREAM_CHUNK = "agent.stream.chunk"
    AGENT_CONTINUATION = "agent.continuation"


class TransientType(StrEnum):
    """What an entry tells that is shown while it happens, and neither stored nor broadcast."""

    AGENT_THINKING = "agent.thinking"
    AGENT_TOOL_PROGRESS = "agent.tool.progress"


class Tokens(Struct, frozen=True, kw_only=True):
    """Token counts: cached ones are part of the prompt, reasoning ones of the completion."""

    prompt: int
    completion: int
    total: int
    cached: int
    reasoning: int

    @classmethod
    def of(cls, usage: Usage) -> "Tokens":
        """The counts of a usage.

        >>> Tokens.of(Usage(input_tokens=3, output_tokens=4)).total
        7
        """
        return cls(
            prompt=usage.input_tokens,
            completion=usage.output_tokens,
            total=usage.total_tokens,
            cached=usage.cached_tokens,
            reasoning=usage.reasoning_tokens,
        )


class Payload(Struct, frozen=True, kw_only=True):
    """What every payload has: whose it is. Name and parent are those of subagents only."""

    agent_id: str
    agent_name: str | None = None
    parent_execution_id: str | None = None
    parent_tool_call_id: str | None = None
    truncated: bool = False
    """A transport could not carry it whole and shortened its texts."""


class Waiting(Struct, frozen=True, kw_only=True):
    """Something a paused execution waits for; an answer names its ``question_id``."""

    question_id: str
    kind: str
    prompt: str
    call_id: str | None
    tool_name: str | None


class Spawn(Struct, frozen=True, kw_only=True):
    """As what a subagent was spawned: the beginning of its prompt, and how deep it is nested."""

    prompt: str
    depth: int


class StatusPayload(Payload, frozen=True, kw_only=True):
    """The execution changed its status; a stop says why."""

    status: BroadcastStatus
    previous_status: BroadcastStatus
    step_count: int
    stop_reason: StopReason | None = None
    reason: str | None = None
    """Why it stopped or waits, in words."""
    error_message: str | None = None
    last_response: str | None = None
    waits_for: tuple[Waiting, ...] = ()
    usage: Tokens | None = None
    """What the execution used in all; with the status that its run ends with."""
    spawned: Spawn | None = None
    """With the first entry of a subagent only."""


class StepStartedPayload(Payload, frozen=True, kw_only=True):
    """A step began."""

    step_number: int
    message_count: int
    available_tools: tuple[str, ...]
    spawned: Spawn | None = None
    """With the first entry of a subagent only."""


class StepCompletedPayload(Payload, frozen=True, kw_only=True):
    """A step ended, well or not; ``errors`` counts what failed."""

    step_number: int
    has_tool_calls: bool
    errors: int
    error_messages: tuple[str, ...]
    finish_reason: FinishReason | None
    usage: Tokens
    duration_ms: float


class ToolStartedPayload(Payload, frozen=True, kw_only=True):
    """A tool call started; ``args`` is included only if the config says so."""

    step_number: int
    tool_name: str
    tool_call_id: str
    args_summary: str
    args: Mapping[str, Any] | None = None


class ToolCompletedPayload(Payload, frozen=True, kw_only=True):
    """A tool call has its result, was blocked, failed, or waits for a person: see ``outcome``."""

    tool_name: str
    tool_call_id: str
    outcome: ToolOutcome
    success: bool
    error: str | None
    duration_ms: float
    result_summary: str | None
    note: str | None = None
    """A note to the model next to the result, such as that the call was repeated."""


class StreamChunkPayload(Payload, frozen=True, kw_only=True):
    """A piece of text; the last one of a response is complete and may be empty."""

    step_number: int
    content: str
    is_complete: bool
    chunk_index: int


class ThinkingPayload(Payload, frozen=True, kw_only=True):
    """A piece of the model's reasoning. It is shown while it happens and never stored."""

    step_number: int
    content: str


class ToolProgressPayload(Payload, frozen=True, kw_only=True):
    """A running tool reports how far it is. It is shown while it happens and never stored."""

    tool_call_id: str
    message: str
    fraction: float | None


class Vote(Struct, frozen=True, kw_only=True):
    """One criterion's word on going on."""

    criterion: str
    decision: ContinuationDecision
    reason: str


class ContinuationPayload(Payload, frozen=True, kw_only=True):
    """A decision with every vote."""

    step_number: int
    should_continue: bool
    stop_reason: StopReason | None
    resolved_by: str
    evaluations: tuple[Vote, ...]


PAYLOADS: Mapping[EnvelopeType, type[Payload]] = {
    EnvelopeType.AGENT_STATUS: StatusPayload,
    EnvelopeType.AGENT_STEP_STARTED: StepStartedPayload,
    EnvelopeType.AGENT_STEP_COMPLETED: StepCompletedPayload,
    EnvelopeType.AGENT_TOOL_STARTED: ToolStartedPayload,
    EnvelopeType.AGENT_TOOL_COMPLETED: ToolCompletedPayload,
    EnvelopeType.AGENT_STREAM_CHUNK: StreamChunkPayload,
    EnvelopeType.AGENT_CONTINUATION: ContinuationPayload,
}
"""The payload of each type of envelope."""


class Envelope(Struct, frozen=True, kw_only=True):
    """One thing to tell user interfaces.

    ``id`` is unique, so that a client can drop what came twice; ``seq`` counts within one adapter,
    so that it can put in order what came late and see what is missing. A session that goes on with
    another adapter counts on if that one is given ``first_seq``.
    """

    id: str
    seq: int
    type: EnvelopeType
    session_id: str
    execution_id: str
    timestamp: str
    payload: Payload

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data, as broadcasters are given it."""
        return json.decode(json.encode(self))


def timestamp(at: datetime) -> str:
    """UTC with milliseconds.

    >>> timestamp(datetime(2026, 1, 16, 10, 5, 0, 123456, tzinfo=UTC))
    '2026-01-16T10:05:00.123Z'
    """
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
