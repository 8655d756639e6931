"""Outcomes as data and as text for a person."""

import json

import pytest

from stepwell import ContinuationDecision, ContinuationEvaluation, FinishReason, StopReason
from stepwell.continuation import ContinuationOutcome, resolve

FORBID, REQUEST, ALLOW_STOP, ALLOW = ContinuationDecision


def vote(decision, name="Some", reason="because", **more):
    return ContinuationEvaluation(criterion=name, decision=decision, reason=reason, **more)


STOPPING = resolve(
    [
        vote(
            FORBID,
            "StepsLimit",
            "3 of 3 steps used",
            context={"current": 3, "maximum": 3},
            stop_reason=StopReason.STEPS_LIMIT,
            hint="raise it with with_max_steps(n).",
        ),
        vote(REQUEST, "ToolCallPresenceCheck", "the model called 1 tool"),
    ]
)
GOING_ON = resolve([vote(ALLOW, "A"), vote(REQUEST, "B", "not done", delay_seconds=2.5)])


@pytest.mark.parametrize("outcome", [STOPPING, GOING_ON, resolve([])])
def test_b012_outcome_to_dict_and_back(outcome):
    restored = ContinuationOutcome.from_dict(json.loads(json.dumps(outcome.to_dict())))

    assert restored == outcome
    assert restored.should_continue == outcome.should_continue
    assert restored.resolving_evaluation == outcome.resolving_evaluation


def test_b012_the_data_names_decision_reason_and_every_vote():
    data = STOPPING.to_dict()

    assert data["should_continue"] is False
    assert data["stop_reason"] == "steps_limit"
    assert data["decision"] == "forbid"
    assert data["resolved_by"] == "StepsLimit"
    assert [v["criterion"] for v in data["evaluations"]] == ["StepsLimit", "ToolCallPresenceCheck"]
    assert data["evaluations"][0]["context"] == {"current": 3, "maximum": 3}


def test_b012_enum_words_in_the_context_survive_as_words():
    outcome = resolve([vote(FORBID, context={"found": FinishReason.LENGTH})])

    restored = ContinuationOutcome.from_dict(json.loads(json.dumps(outcome.to_dict())))

    assert restored.evaluations[0].context == {"found": "length"}


def test_explain_says_what_decided_the_numbers_the_other_votes_and_what_to_change():
    headline, *lines = STOPPING.explain().splitlines()

    assert "the step limit was reached (reason steps_limit, status stopped)" in headline
    assert lines == [
        "  Decided by StepsLimit: 3 of 3 steps used",
        "  Numbers: current=3, maximum=3",
        "  Other votes:",
        "    request     ToolCallPresenceCheck  the model called 1 tool",
        "  What to change: raise it with with_max_steps(n).",
    ]


def test_explain_of_a_run_that_goes_on_names_the_wait_and_no_change():
    text = GOING_ON.explain()

    assert text.startswith("The run goes on.\n  Decided by B: not done")
    assert "The next step waits 2.5 s." in text
    assert "What to change" not in text


def test_explain_without_criteria_says_how_to_add_some():
    text = resolve([]).explain()

    assert "No criterion is registered" in text
    assert "AgentBuilder.base()" in text


def test_explain_of_a_unanimous_stop_lists_all_votes():
    text = resolve([vote(ALLOW_STOP, "A"), vote(ALLOW_STOP, "B")]).explain()

    assert "the work is done (reason completed, status completed)" in text
    assert "Decided by all votes together" in text
    assert text.count("allow_stop") == 2


@pytest.mark.parametrize(
    ("reason", "words", "hint"),
    [
        ("error", "an error ended the run", None),
        ("user_requested", "cancelled on request", "run the state again"),
        ("stop_requested", "asked to stop", None),
        (
            "input_required",
            "the run waits for an answer (reason input_required, status paused)",
            "with_answer(state.pending[0]",
        ),
        ("guard", "a guard forbade", "change or remove the criterion"),
        ("steps_limit", "the step limit", None),
        ("token_limit", "the token limit", None),
        ("time_limit", "the time limit", "with_timeout"),
        ("cost_limit", "the cost limit", None),
        ("retry_limit", "the retries ran out", None),
        ("finish_reason", "finish reason is on the stop list", "shorten the list"),
        ("completed", "the work is done", None),
    ],
)
def test_explain_has_words_for_every_reason(reason, words, hint):
    text = resolve([vote(FORBID, stop_reason=StopReason(reason))]).explain()

    assert words in text
    assert f"(reason {reason}, status " in text
    assert ("What to change" in text) is (hint is not None)
    assert hint is None or hint in text


def test_the_hint_of_the_deciding_vote_comes_before_the_general_one():
    text = resolve([vote(FORBID, stop_reason=StopReason.GUARD, hint="do this.")]).explain()

    assert text.endswith("What to change: do this.")
