"""Votes of a stored outcome that no criterion of a replay casts: a person's, the deadline's, a tool
call's, and those of hooks that ask models. Pure.
"""

from collections.abc import Collection

from msgspec import Struct

from stepwell.continuation import (
    ContinuationDecision,
    ContinuationEvaluation,
    ContinuationOutcome,
    ContinueRequest,
    StopReason,
    StopSignal,
)
from stepwell.state import AgentState, ToolExecution

_DEADLINE = "Deadline"


class OmittedHooks(Struct, kw_only=True):
    """The hooks that a replay goes without, since they ask models."""

    names: set[str]
    """A vote of such a name is theirs."""
    claimed: Collection[str]
    """The names of criteria, tools and other hooks: a vote of such a name is not theirs."""
    signs_otherwise: bool = False
    """Whether one is not of this library, and may sign its votes with any other name."""

    def is_theirs(self, vote: ContinuationEvaluation) -> bool:
        """Whether the vote is one of theirs."""
        if vote.criterion in self.names:
            return True
        return self.signs_otherwise and vote.criterion not in self.claimed


def with_votes_of(
    left_out: OmittedHooks, outcome: ContinuationOutcome, state: AgentState
) -> AgentState:
    """The state with the votes that they cast then, as far as it has none of that name."""
    execution = state.execution
    requests = () if execution is None else execution.continue_requests
    there = {it.name for it in state.signals} | {it.source for it in requests}
    for vote in outcome.evaluations:
        if vote.criterion in there or not left_out.is_theirs(vote):
            continue
        if vote.decision is ContinuationDecision.REQUEST:
            request = ContinueRequest(source=vote.criterion, message=vote.reason)
            state = state.with_continue_request(request)
        elif _is_forbidden(vote):
            state = state.with_signal(_signal(vote))
    return state


def outside_signals(
    outcome: ContinuationOutcome | None, left_out: OmittedHooks | None = None
) -> list[StopSignal]:
    """The stop signals among the votes that came from outside the agent: a person's, the
    deadline's, and those of hooks that a replay goes without."""
    votes = () if outcome is None else outcome.evaluations
    return [
        _signal(vote)
        for vote in votes
        if _is_from_outside(vote)
        or (left_out is not None and _is_forbidden(vote) and left_out.is_theirs(vote))
    ]


def _is_forbidden(vote: ContinuationEvaluation) -> bool:
    return vote.decision is ContinuationDecision.FORBID and vote.stop_reason is not None


def _is_from_outside(vote: ContinuationEvaluation) -> bool:
    if vote.criterion == _DEADLINE:  # one that left a last step to wrap up says allow
        return True
    return _is_forbidden(vote) and vote.stop_reason is StopReason.USER_REQUESTED


def signal_of_call(outcome: ContinuationOutcome, ran: ToolExecution) -> StopSignal | None:
    """The stop signal that a call came with: it waits for an answer, or ended the run."""
    for vote in outcome.evaluations:
        is_forbidden = vote.decision is ContinuationDecision.FORBID
        if not is_forbidden or vote.criterion != ran.call.name or _is_from_outside(vote):
            continue
        if vote.context.get("call_id") in (None, ran.call.id):
            return _signal(vote)
    return None


def _signal(vote: ContinuationEvaluation) -> StopSignal:
    default = StopReason.TIME_LIMIT if vote.criterion == _DEADLINE else StopReason.GUARD
    return StopSignal(
        reason=vote.stop_reason or default,
        message=vote.reason,
        context=vote.context,
        source=vote.criterion,
    )
