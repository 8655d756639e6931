"""Records on a span why a run continues or stops: one event per decision, and at the end every vote
with its numbers. Reasons may quote the conversation, so they count as content.
"""

from opentelemetry.trace import Span

from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.content import attribute_text
from stepwell.capabilities.telemetry.instruments import Attributes
from stepwell.continuation import ContinuationEvaluation, ContinuationOutcome


def add_decision(span: Span, outcome: ContinuationOutcome, step_number: int) -> None:
    """Add the decision after a step as an event."""
    if not span.is_recording():
        return
    votes = [f"{vote.criterion}: {vote.decision}" for vote in outcome.evaluations]
    span.add_event(
        names.DECISION_EVENT,
        {
            names.STEP_NUMBER: step_number,
            names.DECISION_VOTES: votes,
            **_outcome_attributes(outcome),
        },
    )


def add_votes(span: Span, outcome: ContinuationOutcome, *, records_content: bool) -> None:
    """Add the last decision and every vote."""
    if not span.is_recording():
        return
    span.set_attributes(_outcome_attributes(outcome))
    for vote in outcome.evaluations:
        span.add_event(
            names.EVALUATION_EVENT, _vote_attributes(vote, records_content=records_content)
        )


def _outcome_attributes(outcome: ContinuationOutcome) -> Attributes:
    attributes: Attributes = {
        names.DECISION: str(outcome.decision),
        names.RESOLVED_BY: outcome.resolved_by,
    }
    if outcome.stop_reason is not None:
        attributes[names.STOP_REASON] = str(outcome.stop_reason)
    return attributes


def _vote_attributes(vote: ContinuationEvaluation, *, records_content: bool) -> Attributes:
    attributes: Attributes = {
        names.EVALUATION_CRITERION: vote.criterion,
        names.EVALUATION_DECISION: str(vote.decision),
    }
    if vote.stop_reason is not None:
        attributes[names.STOP_REASON] = str(vote.stop_reason)
    for name, value in vote.context.items():
        if isinstance(value, bool | int | float):
            attributes[f"{names.EVALUATION_NUMBER}{name}"] = value
    if records_content:
        attributes[names.EVALUATION_REASON] = attribute_text(vote.reason)
    return attributes
