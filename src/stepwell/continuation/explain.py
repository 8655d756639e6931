"""Turns an outcome into the text a person needs. Only ``ContinuationOutcome.explain`` calls it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepwell.continuation.decisions import AgentStatus, StopReason

if TYPE_CHECKING:
    from stepwell.continuation.outcome import ContinuationEvaluation, ContinuationOutcome

_ENDINGS = {
    StopReason.ERROR: "an error ended the run",
    StopReason.USER_REQUESTED: "the run was cancelled on request",
    StopReason.STOP_REQUESTED: "a tool, hook or driver asked to stop",
    StopReason.INPUT_REQUIRED: "the run waits for an answer",
    StopReason.GUARD: "a guard forbade going on",
    StopReason.STEPS_LIMIT: "the step limit was reached",
    StopReason.TOKEN_LIMIT: "the token limit was reached",
    StopReason.TIME_LIMIT: "the time limit was reached",
    StopReason.COST_LIMIT: "the cost limit was reached",
    StopReason.RETRY_LIMIT: "the retries ran out",
    StopReason.FINISH_REASON: "the model's finish reason is on the stop list",
    StopReason.COMPLETED: "the work is done",
}

_HINTS = {
    StopReason.USER_REQUESTED: "run the state again to start over with the same conversation.",
    StopReason.INPUT_REQUIRED: "answer what state.pending asks with state.with_answer(call_id, "
    "answer), then run the state again.",
    StopReason.GUARD: "change or remove the criterion that forbade, or meet its condition.",
    StopReason.TIME_LIMIT: "raise it with with_timeout(seconds) or Agent(timeout=seconds).",
    StopReason.FINISH_REASON: "shorten the list of finish reasons that stop the run.",
}


def explained(outcome: "ContinuationOutcome", status: AgentStatus) -> str:
    """What decided, the numbers, every other vote, and what to change."""
    return "\n".join(_lines(outcome, status))


def _lines(outcome: "ContinuationOutcome", status: AgentStatus) -> Iterator[str]:
    decisive = outcome.resolving_evaluation
    yield _headline(outcome, status)
    if decisive is not None:
        yield f"  Decided by {decisive.criterion}: {decisive.reason}"
        if decisive.context:
            numbers = ", ".join(f"{key}={value}" for key, value in decisive.context.items())
            yield f"  Numbers: {numbers}"
    elif not outcome.evaluations:
        yield "  No criterion is registered, so nothing asked for a step."
    else:
        yield "  Decided by all votes together; no single one was decisive."
    if outcome.should_continue and outcome.delay_seconds:
        yield f"  The next step waits {outcome.delay_seconds:g} s."
    others = [vote for vote in outcome.evaluations if vote is not decisive]
    if others:
        yield "  Other votes:" if decisive else "  Votes:"
        width = max(len(vote.criterion) for vote in others)
        yield from (_vote_line(vote, width) for vote in others)
    hint = _hint(outcome, decisive)
    if hint:
        yield f"  What to change: {hint}"


def _headline(outcome: "ContinuationOutcome", status: AgentStatus) -> str:
    if outcome.stop_reason is None:
        return "The run goes on."
    verb = "is paused" if status is AgentStatus.PAUSED else "ended"
    return (
        f"The run {verb}: {_ENDINGS[outcome.stop_reason]} "
        f"(reason {outcome.stop_reason}, status {status})."
    )


def _vote_line(vote: "ContinuationEvaluation", width: int) -> str:
    return f"    {vote.decision:<10}  {vote.criterion:<{width}}  {vote.reason}"


def _hint(outcome: "ContinuationOutcome", decisive: "ContinuationEvaluation | None") -> str | None:
    if outcome.stop_reason is None:
        return None
    if not outcome.evaluations:
        return "add continuation criteria, or start from AgentBuilder.base()."
    return (decisive.hint if decisive else None) or _HINTS.get(outcome.stop_reason)
