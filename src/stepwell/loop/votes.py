"""Votes and questions that the loop itself adds: at limits, for faults, for what is waited for."""

import logging
from enum import StrEnum
from typing import Any, cast

from msgspec.structs import asdict, replace

from stepwell.continuation import (
    ContinuationDecision,
    ContinuationEvaluation,
    ContinuationOutcome,
    StopReason,
    StopSignal,
    resolve,
)
from stepwell.criteria import Criterion, cast_vote, criterion_name
from stepwell.errors import DriverError, ErrorType, HookError, describe
from stepwell.foreign import contained
from stepwell.hooks import signal_of
from stepwell.messages import Message, Role
from stepwell.state import NOTHING, AgentState, ErrorInfo, Pending, PendingKind

logger = logging.getLogger("stepwell.loop")


class AtLimit(StrEnum):
    """What happens when a limit on steps, tokens, time or cost is reached."""

    STOP = "stop"
    WRAP_UP = "wrap_up"
    PAUSE = "pause"
    RAISE = "raise"


def is_at_limit(outcome: ContinuationOutcome) -> bool:
    """Whether a limit ended the run."""
    return outcome.stop_reason is not None and outcome.stop_reason.is_limit


def goes_on(state: AgentState, outcome: ContinuationOutcome) -> bool:
    """Before a step only a forbid stops what the last step's votes let go on: the requests that
    were counted then are not there to be counted again."""
    was_to_go_on = state.outcome is not None and state.outcome.should_continue
    forbidden = outcome.decision is ContinuationDecision.FORBID
    return outcome.should_continue or (was_to_go_on and not forbidden)


def still_waiting(pending: Pending) -> StopSignal:
    """The vote of a question that has no answer yet."""
    return StopSignal(
        reason=StopReason.INPUT_REQUIRED,
        message=pending.prompt,
        source=pending.tool_name or str(pending.kind),
        context={"call_id": pending.call_id},
    )


def budget_question(outcome: ContinuationOutcome, state: AgentState) -> Pending:
    """What a run that paused at a limit waits for. With what was granted so far it is another
    question each time that it is asked, also if no step came between."""
    granted = NOTHING if state.execution is None else state.execution.granted
    return Pending(
        kind=PendingKind.BUDGET,
        prompt=f"{outcome.stop_reason} was reached; grant more with "
        "state.with_budget_granted(...) and run the state again",
        details={"stop_reason": outcome.stop_reason, "granted": asdict(granted)},
    )


def one_more_step(outcome: ContinuationOutcome) -> ContinuationOutcome:
    """The same votes, with the limits made way for one last step without tools."""
    votes = [
        replace(
            vote,
            decision=ContinuationDecision.ALLOW,
            reason=f"{vote.reason}; one last step without tools is left",
            stop_reason=None,
        )
        if vote.stop_reason is not None and vote.stop_reason.is_limit
        else vote
        for vote in outcome.evaluations
    ]
    votes.append(
        ContinuationEvaluation(
            criterion="AtLimit",
            decision=ContinuationDecision.REQUEST,
            reason=f"{outcome.stop_reason} was reached; the model may wrap up without tools",
        )
    )
    return resolve(votes)


def sound_step(driven: Any, driver: str) -> AgentState:
    """What a driver returned, if it is a state with a step that leaves the history valid."""
    if not isinstance(driven, AgentState):
        raise DriverError(
            f"{driver}.use_tools returned a {type(driven).__name__}; it must be async and return "
            "state.with_current_step(step)"
        )
    step = None if driven.execution is None else driven.execution.unrecorded_step
    if step is None:
        raise DriverError(
            f"{driver}.use_tools returned a state without a step; return "
            "state.with_current_step(step)"
        )
    results = 0
    for message in step.messages:
        if type(message) is not Message:
            raise DriverError(f"{driver}.use_tools returned a step whose messages are not Messages")
        results += message.role is Role.TOOL
    calls = len(step.tool_calls)
    if results != calls:
        raise DriverError(
            f"{driver}.use_tools returned a step with {calls} tool calls and {results} results; "
            "each call needs one result message behind it"
        )
    return cast("AgentState", driven)


def failed_by_hook(state: AgentState, error: HookError) -> AgentState:
    """A hook raised: the run fails, and the step in flight, if any, shows the error."""
    logger.info("%s", error, exc_info=error)
    in_flight = None if state.execution is None else state.execution.in_flight
    if in_flight is not None and in_flight.step is not None and not in_flight.step.failures:
        info = ErrorInfo.from_exception(error, ErrorType.UNKNOWN)
        state = state.with_step_amended(replace(in_flight.step, failures=(info,)))
    return state.with_signal(signal_of(error))


def vote_or_fault(criterion: Criterion, state: AgentState) -> ContinuationEvaluation:
    """A criterion's vote; one that raises forbids, and says what it raised."""
    try:
        with contained():
            return cast_vote(criterion, state)
    except Exception as error:
        logger.info("criterion %s raised", criterion_name(criterion), exc_info=error)
        return ContinuationEvaluation(
            criterion=criterion_name(criterion),
            decision=ContinuationDecision.FORBID,
            reason=f"the criterion raised {describe(error)}",
            context={"exception": type(error).__name__},
            stop_reason=StopReason.ERROR,
            hint="correct the criterion; it must return a vote for every state.",
        )
