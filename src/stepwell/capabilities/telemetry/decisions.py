"""Why a run goes on or stops, on its span: one event for each decision, and at the end every vote
with the numbers behind it. Words may quote the conversation, so they are content.
"""

from opentelemetry.trace import Span

from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.content import told_text
from stepwell.capabilities.telemetry.instruments import Attributes
from stepwell.continuation import ContinuationEvaluation, ContinuationOutcome


def tell_decision(span: Span, outcome: ContinuationOutcome, step_number: int) -> None:
    """What followed from a step."""
    if not span.is_recording():
        return
    votes = [f"{vote.criterion}: {vote.decision}" for vote in outcome.evaluations]
    span.add_event(
        names.DECISION_EVENT,
        {names.STEP_NUMBER: step_number, names.DECISION_VOTES: votes, **_of_outcome(outcome)},
    )


def tell_votes(span: Span, outcome: ContinuationOutcome, *, tells_content: bool) -> None:
    """The last decision: who made it, and what everybody said."""
    if not span.is_recording():
        return
    span.set_attributes(_of_outcome(outcome))
    for vote in outcome.evaluations:
        span.add_event(names.EVALUATION_EVENT, _of_vote(vote, tells_content=tells_content))


def _of_outcome(outcome: ContinuationOutcome) -> Attributes:
    told: Attributes = {
        names.DECISION: str(outcome.decision),
        names.RESOLVED_BY: outcome.resolved_by,
    }
    if outcome.stop_reason is not None:
        told[names.STOP_REASON] = str(outcome.stop_reason)
    return told


def _of_vote(vote: ContinuationEvaluation, *, tells_content: bool) -> Attributes:
    told: Attributes = {
        names.EVALUATION_CRITERION: vote.criterion,
        names.EVALUATION_DECISION: str(vote.decision),
    }
    if vote.stop_reason is not None:
        told[names.STOP_REASON] = str(vote.stop_reason)
    for name, value in vote.context.items():
        if isinstance(value, bool | int | float):
            told[f"{names.EVALUATION_NUMBER}{name}"] = value
    if tells_content:
        told[names.EVALUATION_REASON] = told_text(vote.reason)
    return told
