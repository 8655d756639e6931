"""What a person needs to know of an outcome: as parts, for a page, and as the text that both the
page and the terminal show. Only ``ContinuationOutcome`` calls it."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

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
    StopReason.INPUT_REQUIRED: "answer what state.pending asks with state.with_answer("
    "state.pending[0], answer), then run the state again.",
    StopReason.GUARD: "change or remove the criterion that forbade, or meet its condition.",
    StopReason.TIME_LIMIT: "raise it with with_timeout(seconds) or Agent(timeout=seconds).",
    StopReason.FINISH_REASON: "shorten the list of finish reasons that stop the run.",
}


class ExplainedVote(Struct, frozen=True, kw_only=True):
    """One vote, as it is shown."""

    criterion: str
    decision: str
    reason: str
    numbers: Mapping[str, Any]
    is_decisive: bool


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a run ended, waits or goes on: what decided, the numbers, every vote, what to change."""

    headline: str
    decided_by: str | None = None
    """The criterion that decided; None if no single one did."""
    why: str
    numbers: Mapping[str, Any] = {}
    delay_seconds: float = 0.0
    votes: tuple[ExplainedVote, ...] = ()
    hint: str | None = None

    @property
    def text(self) -> str:
        """All of it as lines."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self.headline
        yield f"  Decided by {self.decided_by}: {self.why}" if self.decided_by else f"  {self.why}"
        if self.numbers:
            yield "  Numbers: " + ", ".join(
                f"{key}={shown_number(value)}" for key, value in self.numbers.items()
            )
        if self.delay_seconds:
            yield f"  The next step waits {self.delay_seconds:g} s."
        others = [vote for vote in self.votes if not vote.is_decisive]
        if others:
            yield "  Other votes:" if self.decided_by else "  Votes:"
            width = max(len(vote.criterion) for vote in others)
            for vote in others:
                yield f"    {vote.decision:<10}  {vote.criterion:<{width}}  {vote.reason}"
        if self.hint:
            yield f"  What to change: {self.hint}"


def shown_number(value: Any) -> str:
    """A value as people read it: a float with three decimals, a small one with three digits.

    >>> [shown_number(value) for value in (0.21282475, 300.0, 0.0001234567, 7, "x")]
    ['0.213', '300', '0.000123', '7', 'x']
    """
    if not isinstance(value, float):
        return str(value)
    if 0 < abs(value) < 0.1:
        return f"{value:.3g}"
    return f"{value:.3f}".rstrip("0").rstrip(".")


def make_explanation(outcome: "ContinuationOutcome", status: AgentStatus) -> Explanation:
    """What decided, the numbers, every other vote, and what to change."""
    decisive = outcome.resolving_evaluation
    return Explanation(
        headline=_headline(outcome, status),
        decided_by=None if decisive is None else decisive.criterion,
        why=_why(outcome, decisive),
        numbers={} if decisive is None else decisive.context,
        delay_seconds=outcome.delay_seconds if outcome.should_continue else 0.0,
        votes=tuple(
            ExplainedVote(
                criterion=vote.criterion,
                decision=vote.decision.value,
                reason=vote.reason,
                numbers=vote.context,
                is_decisive=vote is decisive,
            )
            for vote in outcome.evaluations
        ),
        hint=_hint(outcome, decisive),
    )


def _why(outcome: "ContinuationOutcome", decisive: "ContinuationEvaluation | None") -> str:
    if decisive is not None:
        return decisive.reason
    if not outcome.evaluations:
        return "No criterion is registered, so nothing asked for a step."
    return "Decided by all votes together; no single one was decisive."


def _headline(outcome: "ContinuationOutcome", status: AgentStatus) -> str:
    if outcome.stop_reason is None:
        return "The run goes on."
    verb = "is paused" if status is AgentStatus.PAUSED else "ended"
    ending = "the answer was cut off" if outcome.was_cut else _ENDINGS[outcome.stop_reason]
    return f"The run {verb}: {ending} (reason {outcome.stop_reason}, status {status})."


def _hint(outcome: "ContinuationOutcome", decisive: "ContinuationEvaluation | None") -> str | None:
    if outcome.stop_reason is None:
        return None
    if not outcome.evaluations:
        return "add continuation criteria, or start from AgentBuilder.base()."
    return (decisive.hint if decisive else None) or _HINTS.get(outcome.stop_reason)
