"""How a run ended, in the AI SDK's words and as a data part of our own."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from stepwell.continuation import AgentStatus, StopReason
from stepwell.journal.envelope import StatusPayload
from stepwell.journal.status import BroadcastStatus
from stepwell.messages import FinishReason, Usage
from stepwell.protocols.ai_sdk.values import sendable
from stepwell.protocols.call_ids import CallIds
from stepwell.state import AgentState, PendingKind, Question

_FINISH_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CONTENT_FILTER: "content-filter",
    FinishReason.TOOL_CALLS: "tool-calls",
    FinishReason.ERROR: "error",
    FinishReason.OTHER: "other",
}

STOP_PART = "data-stepwell-stop"
"""The part that says why a run ended; answers to its questions count only with it."""


class Stop(Struct, frozen=True, kw_only=True):
    """Why a run ended, and what it waits for if it is paused."""

    status: BroadcastStatus
    stop_reason: StopReason | None
    explanation: str
    steps: int = 0
    usage: Usage = Usage()
    execution_id: str = ""
    waits_for: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of_state(cls, state: AgentState) -> "Stop":
        """Return the stop of a run by its last state."""
        return cls(
            status=BroadcastStatus.of(state.status),
            stop_reason=None if state.stop is None else state.stop.stop_reason,
            explanation=state.explain(),
            steps=state.step_count,
            usage=state.usage,
            execution_id="" if state.execution is None else state.execution.id,
            waits_for=tuple(_question_data(pending) for pending in state.pending),
        )

    @classmethod
    def of_status(cls, payload: StatusPayload, execution_id: str) -> "Stop":
        """Return the stop of a run by its newest status."""
        used = payload.usage
        usage = (
            Usage()
            if used is None
            else Usage(
                input_tokens=used.prompt,
                output_tokens=used.completion,
                cached_tokens=used.cached,
                reasoning_tokens=used.reasoning,
            )
        )
        return cls(
            status=payload.status,
            stop_reason=payload.stop_reason,
            explanation=payload.reason or "",
            steps=payload.step_count,
            usage=usage,
            execution_id=execution_id,
            waits_for=tuple({**to_builtins(asked), "details": {}} for asked in payload.waits_for),
        )

    @classmethod
    def of_fault(cls, error: str) -> "Stop":
        """Return the stop of a run that broke off."""
        status = BroadcastStatus.of(AgentStatus.FAILED)
        return cls(status=status, stop_reason=StopReason.ERROR, explanation=error)

    def with_wire_ids(self, ids: CallIds) -> "Stop":
        """Return the same with the ids under which the client knows the calls that wait."""
        return replace(self, waits_for=tuple(_with_wire_id(asked, ids) for asked in self.waits_for))

    @property
    def waiting_calls(self) -> dict[str, PendingKind]:
        """The calls that wait for a person, with the kind of question."""
        return {
            asked["call_id"]: PendingKind(asked["kind"])
            for asked in self.waits_for
            if asked["call_id"] is not None
        }

    @property
    def approvals(self) -> dict[str, str]:
        """The ids of approval questions, by call."""
        return {
            asked["call_id"]: asked["question_id"]
            for asked in self.waits_for
            if asked["call_id"] is not None and asked["kind"] == PendingKind.APPROVAL
        }

    def part(self) -> dict[str, Any]:
        """Return the data part, which stays in the message until the run continues."""
        data = {
            "status": self.status.value,
            "stop_reason": None if self.stop_reason is None else self.stop_reason.value,
            "explanation": self.explanation,
            "execution_id": self.execution_id,
            "steps": self.steps,
            "waits_for": self.waits_for,
        }
        return {"type": STOP_PART, "id": "stepwell-stop", "data": sendable(data)}

    def metadata(self) -> dict[str, Any]:
        """Return the usage under the AI SDK's names."""
        usage = {
            "inputTokens": self.usage.input_tokens,
            "outputTokens": self.usage.output_tokens,
            "totalTokens": self.usage.total_tokens,
            "cachedInputTokens": self.usage.cached_tokens,
            "reasoningTokens": self.usage.reasoning_tokens,
        }
        return {"type": "message-metadata", "messageMetadata": {"usage": usage}}

    def finish_reason(self, last: FinishReason | None) -> str:
        """Return the AI SDK's finish reason; ``last`` is the model's own."""
        if self.status is BroadcastStatus.FAILED:
            return "error"
        if self.status is BroadcastStatus.PAUSED and self.waiting_calls:
            return "tool-calls"
        is_cut = self.stop_reason is StopReason.FINISH_REASON
        if self.status is BroadcastStatus.COMPLETED or is_cut:
            return "stop" if last is None else _FINISH_REASONS[last]
        return "other"


def _with_wire_id(asked: Mapping[str, Any], ids: CallIds) -> Mapping[str, Any]:
    call_id = asked["call_id"]
    return asked if call_id is None else {**asked, "call_id": ids.newest(call_id)}


def _question_data(pending: Question) -> dict[str, Any]:
    return {
        "question_id": pending.id,
        "kind": pending.kind.value,
        "prompt": pending.prompt,
        "call_id": pending.call_id,
        "tool_name": pending.tool_name,
        "details": pending.details,
    }
