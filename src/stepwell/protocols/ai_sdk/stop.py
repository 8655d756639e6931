"""How a run ended, in the words of the AI SDK and, as a data part, in ours."""

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
"""The part that says why a run ended; answers to its questions are taken only with it."""


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
        """From the last state of a run."""
        return cls(
            status=BroadcastStatus.of(state.status),
            stop_reason=None if state.stop is None else state.stop.stop_reason,
            explanation=state.explain(),
            steps=state.step_count,
            usage=state.usage,
            execution_id="" if state.execution is None else state.execution.id,
            waits_for=tuple(_asked(pending) for pending in state.pending),
        )

    @classmethod
    def of_status(cls, payload: StatusPayload, execution_id: str) -> "Stop":
        """From the newest status, for those who have no state."""
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
        """For a run that broke off before it could end."""
        status = BroadcastStatus.of(AgentStatus.FAILED)
        return cls(status=status, stop_reason=StopReason.ERROR, explanation=error)

    def with_wire_ids(self, ids: CallIds) -> "Stop":
        """Return the same with the ids under which the client knows the calls that wait."""
        return replace(self, waits_for=tuple(_with_wire_id(asked, ids) for asked in self.waits_for))

    @property
    def waiting_calls(self) -> dict[str, PendingKind]:
        """The calls that wait for a person, and for what."""
        return {
            asked["call_id"]: PendingKind(asked["kind"])
            for asked in self.waits_for
            if asked["call_id"] is not None
        }

    @property
    def approvals(self) -> dict[str, str]:
        """By call, the id of the question whether it may run."""
        return {
            asked["call_id"]: asked["question_id"]
            for asked in self.waits_for
            if asked["call_id"] is not None and asked["kind"] == PendingKind.APPROVAL
        }

    def part(self) -> dict[str, Any]:
        """The data part that tells it; kept in the message, and replaced when the run goes on."""
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
        """The usage, named as the AI SDK does."""
        usage = {
            "inputTokens": self.usage.input_tokens,
            "outputTokens": self.usage.output_tokens,
            "totalTokens": self.usage.total_tokens,
            "cachedInputTokens": self.usage.cached_tokens,
            "reasoningTokens": self.usage.reasoning_tokens,
        }
        return {"type": "message-metadata", "messageMetadata": {"usage": usage}}

    def finish_reason(self, last: FinishReason | None) -> str:
        """The AI SDK's word; ``last`` is why the model ended its last turn."""
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


def _asked(pending: Question) -> dict[str, Any]:
    return {
        "question_id": pending.id,
        "kind": pending.kind.value,
        "prompt": pending.prompt,
        "call_id": pending.call_id,
        "tool_name": pending.tool_name,
        "details": pending.details,
    }
