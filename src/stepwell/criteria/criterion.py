"""Criteria: pure functions of a state that vote, and the list that asks them all."""

from collections.abc import Callable, Iterator
from typing import Protocol, cast, runtime_checkable

from msgspec.structs import replace

from stepwell.continuation import (
    ContinuationDecision,
    ContinuationEvaluation,
    ContinuationOutcome,
    StopReason,
    resolve,
    votes_of,
)
from stepwell.errors import ConfigurationError
from stepwell.state import AgentState

Vote = ContinuationEvaluation | ContinuationDecision


class Criterion(Protocol):
    """Votes on whether the run goes on; one method is all an own criterion needs."""

    def evaluate(self, state: AgentState) -> Vote:
        """A vote with words and numbers, or a bare decision that gets default words."""
        ...


@runtime_checkable
class Limit(Protocol):
    """A criterion that guards a budget. It is also asked before each step, so it must be quick."""

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """The vote with the numbers."""
        ...

    def is_reached(self, state: AgentState) -> bool:
        """Whether the budget is used up; the same test as ``evaluate``, without the words."""
        ...


class ContinuationCriteria:
    """All criteria of an agent. ``evaluate``, ``can_continue`` and ``decide`` always agree.

    >>> ContinuationCriteria().evaluate(AgentState.empty()).stop_reason
    <StopReason.COMPLETED: 'completed'>
    """

    def __init__(self, *criteria: "Criterion | ContinuationCriteria") -> None:
        self.criteria: tuple[Criterion, ...] = tuple(_flat(criteria))
        # Looked up by hand: isinstance with a protocol took more than half of building an agent.
        limits = {place: c for place, c in enumerate(self.criteria) if hasattr(c, "is_reached")}
        self._limit_places = frozenset(limits)
        self._limits_to_recheck = tuple(
            cast("Limit", limit)
            for limit in limits.values()
            if not getattr(limit, "changes_only_in_steps", False)
        )
        self.has_own = any(
            isinstance(c, _Function) or not type(c).__module__.startswith("stepwell.")
            for c in self.criteria
        )
        """Whether there are criteria that Stepwell does not bring along."""

    @classmethod
    def from_(cls, *criteria: "Criterion | ContinuationCriteria") -> "ContinuationCriteria":
        """The same as the constructor, for those who like to read it."""
        return cls(*criteria)

    @classmethod
    def when(cls, function: Callable[[AgentState], Vote]) -> "ContinuationCriteria":
        """Criteria of a single function.

        >>> always = ContinuationCriteria.when(lambda state: ContinuationDecision.REQUEST)
        >>> always.can_continue(AgentState.empty())
        True
        """
        if not callable(function):
            raise ConfigurationError(
                f"when() wants a function from state to vote, got {function!r}"
            )
        return cls(_Function(function))

    def evaluate(self, state: AgentState) -> ContinuationOutcome:
        """Ask every criterion, add the signals raised in the state, and resolve."""
        votes: list[ContinuationEvaluation] = []
        for criterion in self.criteria:
            vote = criterion.evaluate(state)
            if self.has_own or type(vote) is not ContinuationEvaluation:
                vote = _proper(vote, criterion)
            votes.append(vote)
        return self.resolve(state, votes)

    def can_continue(self, state: AgentState) -> bool:
        """Whether the run goes on."""
        return self.evaluate(state).should_continue

    def decide(self, state: AgentState) -> ContinuationDecision:
        """The decision all votes add up to."""
        return self.evaluate(state).decision

    def is_limit_reached(self, state: AgentState) -> bool:
        """Return whether a limit was reached since the last step was recorded. Limits whose amount
        only changes in steps voted then and are not asked again."""
        for limit in self._limits_to_recheck:  # noqa: SIM110 - runs before each step
            if limit.is_reached(state):
                return True
        return False

    def resolve(
        self, state: AgentState, votes: list[ContinuationEvaluation]
    ) -> ContinuationOutcome:
        """One outcome from the criteria's votes, in their order, and the state's signals."""
        execution = state.execution
        if execution is not None and (execution.signals or execution.continue_requests):
            votes += votes_of(execution.signals, execution.continue_requests)
        outcome = resolve(votes)
        wraps_up = execution is not None and execution.wrapping_up
        if outcome.stop_reason is None or not outcome.stop_reason.is_limit or wraps_up:
            return outcome
        return resolve(self._without_idle_limits(votes))

    def _without_idle_limits(
        self, votes: list[ContinuationEvaluation]
    ) -> list[ContinuationEvaluation]:
        """A limit only counts when something wants to go on: a run that ends by itself on its
        last allowed step is completed, not cut off."""
        decisions = {vote.decision for vote in votes}
        ends_by_itself = ContinuationDecision.ALLOW_STOP in decisions
        if not ends_by_itself or ContinuationDecision.REQUEST in decisions:
            return votes
        return [
            _idle(vote)
            if place in self._limit_places and vote.decision is ContinuationDecision.FORBID
            else vote
            for place, vote in enumerate(votes)
        ]


class _Function:
    """A plain function as a criterion, named after the function."""

    def __init__(self, function: Callable[[AgentState], Vote]) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def evaluate(self, state: AgentState) -> Vote:
        return self._function(state)


def criterion_name(criterion: Criterion) -> str:
    """The short name that the trace shows."""
    return criterion.name if isinstance(criterion, _Function) else type(criterion).__name__


def cast_vote(criterion: Criterion, state: AgentState) -> ContinuationEvaluation:
    """A criterion's vote, with default words if it gave a bare decision."""
    return _proper(criterion.evaluate(state), criterion)


def _proper(vote: Vote, criterion: Criterion) -> ContinuationEvaluation:
    if isinstance(vote, ContinuationEvaluation):
        plain_words = type(vote.decision) is str or type(vote.stop_reason) is str
        return _with_proper_words(vote) if plain_words else vote
    if isinstance(vote, ContinuationDecision):  # pyright: ignore[reportUnnecessaryIsInstance]
        return ContinuationEvaluation.from_decision(criterion_name(criterion), vote)
    raise TypeError(
        f"{criterion_name(criterion)} voted {vote!r}; return a ContinuationDecision or a "
        "ContinuationEvaluation"
    )


def _with_proper_words(vote: ContinuationEvaluation) -> ContinuationEvaluation:
    """A vote written with plain strings; an unknown word raises."""
    reason = vote.stop_reason
    return replace(
        vote,
        decision=ContinuationDecision(vote.decision),
        stop_reason=None if reason is None else StopReason(reason),
    )


def _idle(vote: ContinuationEvaluation) -> ContinuationEvaluation:
    return replace(
        vote,
        decision=ContinuationDecision.ALLOW,
        reason=f"{vote.reason}, but nothing asked for another step",
        stop_reason=None,
        hint=None,
    )


def _flat(criteria: "tuple[Criterion | ContinuationCriteria, ...]") -> Iterator[Criterion]:
    for criterion in criteria:
        if isinstance(criterion, ContinuationCriteria):
            yield from criterion.criteria
        elif not isinstance(criterion, type) and callable(getattr(criterion, "evaluate", None)):
            yield criterion
        else:
            raise ConfigurationError(
                f"{criterion!r} is not a criterion: give an object with an evaluate(state) method, "
                "or wrap a function with ContinuationCriteria.when(function)"
            )
