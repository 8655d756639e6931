"""Explains the status of an execution, with hints that a client of the API can act on.

The loop's own hints name Python methods, which such a client does not have. So what the client can
do comes first, then what the operator can.
"""

from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from stepwell.continuation import AgentStatus, ContinuationOutcome, StopReason
from stepwell.state import AgentState, Pending, PendingKind

GO_ON = "send another message to go on with the same conversation"
_RAISE = "raise it with "
"""The beginning of the hints of limits."""


def explain_stop(state: AgentState) -> str:
    """Return ``state.explain()`` with the server's hints instead of the library's."""
    outcome = _with_hint(state)
    if outcome is None:
        return state.explain()
    waits = [f"  Waits for {p.call_id or p.kind}: {prompt_of(p, state)}" for p in state.pending]
    return "\n".join([outcome.explain(state.status), *waits])


def stop_of(state: AgentState) -> dict[str, Any]:
    """Return the same as data: ``text`` is all of it, the rest are its parts."""
    outcome = _with_hint(state)
    if outcome is None:
        return only_words(explain_stop(state))
    explanation = outcome.explanation(state.status)
    return {
        "text": explain_stop(state),
        **to_builtins(explanation),
        "reason": None if outcome.stop_reason is None else outcome.stop_reason.value,
        "waits_for": [
            {
                "question_id": asked.id,
                "kind": asked.kind.value,
                "call_id": asked.call_id,
                "prompt": prompt_of(asked, state),
            }
            for asked in state.pending
        ],
    }


def only_words(text: str) -> dict[str, Any]:
    """Explain what no loop decided: an execution that waits, was set aside, or lost its states."""
    return {
        "text": text,
        "headline": text,
        "decided_by": None,
        "why": "",
        "numbers": {},
        "delay_seconds": 0.0,
        "votes": [],
        "hint": None,
        "reason": None,
        "waits_for": [],
    }


def _with_hint(state: AgentState) -> ContinuationOutcome | None:
    outcome = state.outcome
    if outcome is None:
        return None
    decisive, hint = outcome.resolving_evaluation, _hint(state)
    if hint is None:
        return outcome
    votes = [replace(v, hint=hint) if v is decisive else v for v in outcome.evaluations]
    return replace(outcome, evaluations=tuple(votes))


def prompt_of(asked: Pending, state: AgentState) -> str:
    """Return the prompt of a question."""
    if asked.kind is not PendingKind.BUDGET:
        return asked.prompt
    reason = asked.details.get("stop_reason", "a limit")
    return f"{reason} was reached; to grant more: {_resume(state)}"


def _hint(state: AgentState) -> str | None:
    if state.status is AgentStatus.PAUSED:
        kinds = {asked.kind for asked in state.pending}
        hints = [_resume(state)] if PendingKind.BUDGET in kinds else []
        if kinds - {PendingKind.BUDGET}:
            hints.append(f"POST {_path(state)}/answer with question_id and answer")
        raising = f"; {_raise_hint(state)}" if PendingKind.BUDGET in kinds else "."
        return f"{', and '.join(hints)}{raising}" if hints else None
    reason = None if state.outcome is None else state.outcome.stop_reason
    if reason is StopReason.USER_REQUESTED:
        return f"{GO_ON}."
    if reason is not None and reason.is_limit:
        return f"{GO_ON}; {_raise_hint(state)}"
    return None


def _raise_hint(state: AgentState) -> str:
    """Return how to raise the limit that decided, by the criterion's own hint."""
    decisive = None if state.outcome is None else state.outcome.resolving_evaluation
    way = "" if decisive is None or not decisive.hint else decisive.hint
    if way.startswith(_RAISE):
        return f"who runs the agent can raise the limit: {way.removeprefix(_RAISE)}"
    return f"who runs the agent can raise the limit{f': {way}' if way else '.'}"


def _resume(state: AgentState) -> str:
    return f"POST {_path(state)}/resume with question_id and steps, tokens, seconds or cost"


def _path(state: AgentState) -> str:
    id = "{id}" if state.execution is None else state.execution.id
    return f"/agent/executions/{id}"
