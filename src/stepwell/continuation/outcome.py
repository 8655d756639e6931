"""Votes and what they add up to: evaluations, the one resolver, and the outcome with its trace."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import asdict

from stepwell.continuation.decisions import AgentStatus, ContinuationDecision, StopReason
from stepwell.continuation.explain import Explanation, make_explanation
from stepwell.messages import FinishReason, Kept

AGGREGATE = "aggregate"
"""The resolver's name when no single vote decided."""

_VERBS = {
    ContinuationDecision.FORBID: "forbids going on",
    ContinuationDecision.REQUEST: "asks to go on",
    ContinuationDecision.ALLOW_STOP: "allows stopping",
    ContinuationDecision.ALLOW: "allows going on",
}


class ContinuationEvaluation(Kept, frozen=True, kw_only=True):
    """One vote: who, what, why in words, and the numbers behind it.

    ``hint`` says what to change; ``delay_seconds`` asks to wait before the next step.
    """

    criterion: str
    decision: ContinuationDecision
    reason: str
    context: Mapping[str, Any] = {}
    stop_reason: StopReason | None = None
    hint: str | None = None
    delay_seconds: float = 0.0

    @classmethod
    def from_decision(
        cls, criterion: str, decision: ContinuationDecision
    ) -> "ContinuationEvaluation":
        """A vote that came without words.

        >>> ContinuationEvaluation.from_decision("MyCheck", ContinuationDecision.FORBID).reason
        'MyCheck forbids going on'
        """
        return cls(criterion=criterion, decision=decision, reason=f"{criterion} {_VERBS[decision]}")


class ContinuationOutcome(Kept, frozen=True, kw_only=True):
    """What all votes of one checkpoint add up to, with every vote kept."""

    decision: ContinuationDecision
    resolved_by: str
    stop_reason: StopReason | None
    evaluations: tuple[ContinuationEvaluation, ...] = ()
    delay_seconds: float = 0.0
    """How long to wait before the next step, when the run goes on."""

    @property
    def should_continue(self) -> bool:
        """Whether the run goes on."""
        return self.stop_reason is None

    @property
    def status(self) -> AgentStatus:
        """The run's status that follows from this outcome."""
        if self.stop_reason is None:
            return AgentStatus.IN_PROGRESS
        return AgentStatus.after(self.stop_reason, was_cut=self.was_cut)

    @property
    def was_cut(self) -> bool:
        """Whether the run ended with an answer that a limit or a filter cut off."""
        if self.stop_reason is not StopReason.FINISH_REASON:
            return False
        decisive = self.resolving_evaluation
        found = None if decisive is None else decisive.context.get("finish_reason")
        return found in tuple(FinishReason) and FinishReason(found).cuts

    @property
    def resolving_evaluation(self) -> ContinuationEvaluation | None:
        """The vote that decided, if a single one did."""
        return next(
            (
                vote
                for vote in self.evaluations
                if vote.criterion == self.resolved_by
                and vote.decision is self.decision
                and (self.forbidding_criterion is None or _reason(vote) is self.stop_reason)
            ),
            None,
        )

    @property
    def has_requests(self) -> bool:
        """Whether anyone asked to go on, heard or not."""
        return any(v.decision is ContinuationDecision.REQUEST for v in self.evaluations)

    @property
    def forbidding_criterion(self) -> str | None:
        """The first criterion that forbade going on, in order of registration."""
        return next(
            (v.criterion for v in self.evaluations if v.decision is ContinuationDecision.FORBID),
            None,
        )

    def evaluation_for(self, criterion: str) -> ContinuationEvaluation | None:
        """The vote of the criterion with that name."""
        return next((vote for vote in self.evaluations if vote.criterion == criterion), None)

    def explain(self, status: AgentStatus | None = None) -> str:
        """The text a person needs: what decided, the numbers, the other votes, what to change.

        ``status`` is the run's, where it differs: a run may pause at a limit instead of stopping.
        """
        return self.explanation(status).text

    def explanation(self, status: AgentStatus | None = None) -> Explanation:
        """The parts of that text, for a page."""
        return make_explanation(self, status or self.status)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data, also with the derived ``should_continue``."""
        votes = [to_builtins(asdict(vote)) for vote in self.evaluations]
        fields = {**to_builtins(asdict(self)), "evaluations": votes}
        return {"should_continue": self.should_continue, **fields}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ContinuationOutcome":
        """The outcome that ``to_dict`` described."""
        return convert({k: v for k, v in data.items() if k != "should_continue"}, cls)


def resolve(evaluations: Sequence[ContinuationEvaluation]) -> ContinuationOutcome:
    """Any forbid stops; else any request goes on; else any allow_stop stops; else it goes on."""
    requested: ContinuationEvaluation | None = None
    may_stop: ContinuationEvaluation | None = None
    forbidding: ContinuationEvaluation | None = None
    delay = 0.0
    for vote in evaluations:
        decision = vote.decision
        if decision is ContinuationDecision.FORBID:
            if forbidding is None or _reason(vote).urgency < _reason(forbidding).urgency:
                forbidding = vote
        elif decision is ContinuationDecision.REQUEST:
            requested = requested or vote
            delay = max(delay, vote.delay_seconds)
        elif decision is ContinuationDecision.ALLOW_STOP:
            may_stop = may_stop or vote
    if forbidding is not None:
        decision, decisive = ContinuationDecision.FORBID, forbidding
        reason = _reason(forbidding)
    elif requested is not None:
        decision, decisive, reason = ContinuationDecision.REQUEST, requested, None
    elif may_stop is not None or not evaluations:
        unanimous = all(v.decision is ContinuationDecision.ALLOW_STOP for v in evaluations)
        decision, decisive = ContinuationDecision.ALLOW_STOP, None if unanimous else may_stop
        reason = StopReason.COMPLETED
    else:
        decision, decisive, reason = ContinuationDecision.ALLOW, None, None
    return ContinuationOutcome(
        decision=decision,
        resolved_by=AGGREGATE if decisive is None else decisive.criterion,
        stop_reason=reason,
        evaluations=tuple(evaluations),
        delay_seconds=0.0 if reason is not None else delay,
    )


def _reason(forbidding: ContinuationEvaluation) -> StopReason:
    return forbidding.stop_reason or StopReason.GUARD
