"""Steps and votes in few lines."""

from stepwell.cli.step_lines import vote_lines
from stepwell.continuation import (
    AgentStatus,
    ContinuationDecision,
    ContinuationEvaluation,
    resolve,
)

VOTE = ContinuationEvaluation(
    criterion="ExecutionTimeLimit",
    decision=ContinuationDecision.FORBID,
    reason="too long",
    context={"current": 0.21282475799671374, "maximum": 300.0, "cost": 0.00012345678, "steps": 3},
)
ROUNDED = "current=0.213, maximum=300, cost=0.000123, steps=3"


def test_numbers_of_votes_are_rounded_for_people():
    [line] = vote_lines(resolve([VOTE]).to_dict())
    assert line == f"forbid      ExecutionTimeLimit  too long  [{ROUNDED}]"


def test_numbers_of_an_explanation_are_rounded_in_its_text_and_exact_as_data():
    told = resolve([VOTE]).explanation(AgentStatus.STOPPED)
    assert f"  Numbers: {ROUNDED}" in told.text.splitlines()
    assert told.numbers == VOTE.context
