"""Steps and votes in few lines."""

from stepwell.cli.step_lines import vote_lines, whole_step
from stepwell.cli.terminal import Style
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


def test_what_a_provider_calls_its_model_steers_no_terminal():
    step = {
        "number": 1,
        "type": "final_response",
        "duration_seconds": 1.0,
        "usage": {"input_tokens": 1, "output_tokens": 1, "cached_tokens": 0},
        "cost": None,
        "model": "\x1b]0;pwned\x07",
        "finish_reason": "stop\x1b[2J",
        "thinking": "",
        "text": "Hello",
        "tool_executions": [],
        "errors": [],
        "decision": resolve([VOTE]).to_dict(),
    }
    told = "\n".join(whole_step(step, Style(False), full=True))
    assert "⟨U+001B⟩]0;pwned⟨U+0007⟩, stop⟨U+001B⟩[2J" in told
    assert "\x1b" not in told
