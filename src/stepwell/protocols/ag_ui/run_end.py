"""The end of a run in AG-UI: success, interrupts with their questions, cancelled, or an error."""

from typing import Any

from stepwell.continuation import AgentStatus
from stepwell.messages import Usage
from stepwell.protocols.ag_ui.messages import OWN_KEY
from stepwell.protocols.call_ids import CallIds
from stepwell.protocols.client_stream import WireEvent
from stepwell.state import AgentState, PendingKind, Question
from stepwell.state.given_state import state_of
from stepwell.tools.result_text import json_value

STOP_EVENT = "stepwell.stop"
"""The CUSTOM event that says why a run ended."""

_REASONS = {
    PendingKind.QUESTION: "input_required",
    PendingKind.APPROVAL: "tool_call",
    PendingKind.BUDGET: "budget",
}
_ANSWERS: dict[PendingKind, WireEvent] = {
    PendingKind.QUESTION: {"type": "string"},
    PendingKind.APPROVAL: {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "message": {"type": "string"},
            "editedArgs": {"type": "object"},
        },
        "required": ["approved"],
    },
    PendingKind.BUDGET: {
        "type": "object",
        "properties": {
            "steps": {"type": "integer"},
            "tokens": {"type": "integer"},
            "seconds": {"type": "number"},
            "cost": {"type": "number"},
        },
    },
}


def stop_value(state: AgentState) -> WireEvent:
    """Return why the run ended, as data and in words."""
    stop = state.stop
    return {
        "status": state.status.value,
        "stopReason": None if stop is None or stop.stop_reason is None else stop.stop_reason.value,
        "explanation": state.explain(),
        "steps": state.step_count,
    }


def terminal_event(state: AgentState, *, run: dict[str, str], error: str, used: Usage) -> WireEvent:
    """Return RUN_FINISHED with its outcome, or RUN_ERROR if the run failed."""
    usage = [wire_usage(used)] if used else []
    if state.status is AgentStatus.FAILED:
        reason = stop_value(state)["stopReason"]
        ended = {"type": "RUN_ERROR", "message": error or state.explain()}
        return {**ended, **_unless_empty(code=reason, usage=usage)}
    result = state.output if state.status is AgentStatus.COMPLETED else None
    return {
        "type": "RUN_FINISHED",
        **run,
        "outcome": _outcome(state),
        **_unless_empty(usage=usage),
        **({} if result is None else {"result": json_value(result)}),
    }


def wire_usage(usage: Usage) -> dict[str, int]:
    """Return token counts under AG-UI's names; the totals include cached and reasoning tokens.

    >>> wire_usage(Usage(input_tokens=3, output_tokens=4))["totalTokens"]
    7
    """
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }


def _outcome(state: AgentState) -> WireEvent:
    if state.status is AgentStatus.CANCELLED:
        return {"type": "cancelled"}
    if state.status is AgentStatus.PAUSED and state.pending:
        ids = CallIds()
        ids.learn(state.messages)
        waits_for = [_interrupt(pending, ids) for pending in state.pending]
        return {"type": "interrupt", "interrupts": waits_for}
    return {"type": "success"}


def _interrupt(pending: Question, ids: CallIds) -> WireEvent:
    about = {"kind": pending.kind.value, "details": dict(pending.details)}
    asked_by = {"toolName": pending.tool_name} if pending.tool_name else {}
    interrupt: WireEvent = {
        "id": pending.id,
        "reason": _REASONS[pending.kind],
        "message": pending.prompt,
        "responseSchema": _ANSWERS[pending.kind],
        "metadata": {OWN_KEY: {**about, **asked_by}},
    }
    if pending.call_id is not None:
        interrupt["toolCallId"] = ids.newest(pending.call_id)
    if (child := state_of(pending.kept)) is not None:
        interrupt["subagentRunId"] = child.agent_id
    return interrupt


def _unless_empty(**fields: Any) -> WireEvent:
    return {name: value for name, value in fields.items() if value}
