"""The resolver: how votes add up to one outcome."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import AgentStatus, ContinuationDecision, ContinuationEvaluation, StopReason
from stepwell.continuation import AGGREGATE, resolve

FORBID, REQUEST, ALLOW_STOP, ALLOW = ContinuationDecision

ORDERED_REASONS = [
    "error",
    "user_requested",
    "stop_requested",
    "input_required",
    "guard",
    "steps_limit",
    "token_limit",
    "time_limit",
    "cost_limit",
    "retry_limit",
    "finish_reason",
    "completed",
]

STATUS_AFTER = {
    "completed": "completed",
    "finish_reason": "completed",
    "error": "failed",
    "retry_limit": "failed",
    "user_requested": "cancelled",
    "input_required": "paused",
    "stop_requested": "stopped",
    "guard": "stopped",
    "steps_limit": "stopped",
    "token_limit": "stopped",
    "time_limit": "stopped",
    "cost_limit": "stopped",
}


def vote(decision, name="Some", reason=None, **more):
    return ContinuationEvaluation(
        criterion=name, decision=decision, reason="because", stop_reason=reason, **more
    )


def test_b001_no_votes_stop_as_completed_with_an_empty_trace():
    outcome = resolve([])

    assert not outcome.should_continue
    assert outcome.decision is ALLOW_STOP
    assert outcome.stop_reason is StopReason.COMPLETED
    assert outcome.evaluations == ()


@pytest.mark.parametrize("votes", [*permutations([vote(FORBID, "No"), vote(REQUEST, "Yes")])])
def test_b002_a_forbid_beats_a_request_in_either_order(votes):
    outcome = resolve(votes)

    assert not outcome.should_continue
    assert outcome.decision is FORBID
    assert outcome.resolved_by == "No"


@pytest.mark.parametrize("votes", [*permutations([vote(ALLOW_STOP, "May"), vote(REQUEST, "Yes")])])
def test_b003_a_request_beats_an_allowed_stop(votes):
    outcome = resolve(votes)

    assert outcome.should_continue
    assert outcome.decision is REQUEST
    assert outcome.resolved_by == "Yes"


def test_b004_all_allow_stop_is_completed_by_the_aggregate():
    outcome = resolve([vote(ALLOW_STOP, "One"), vote(ALLOW_STOP, "Two")])

    assert not outcome.should_continue
    assert outcome.stop_reason is StopReason.COMPLETED
    assert outcome.resolved_by == AGGREGATE == "aggregate"
    assert outcome.resolving_evaluation is None


def test_b004_the_one_that_allows_stopping_among_indifferent_votes_is_named():
    outcome = resolve([vote(ALLOW, "One"), vote(ALLOW_STOP, "Two")])

    assert outcome.stop_reason is StopReason.COMPLETED
    assert outcome.resolved_by == "Two"


def test_only_allow_goes_on():
    outcome = resolve([vote(ALLOW), vote(ALLOW)])

    assert outcome.should_continue
    assert outcome.decision is ALLOW
    assert outcome.resolved_by == "aggregate"


def test_b007_a_forbid_without_a_reason_is_a_guard():
    outcome = resolve([vote(FORBID)])

    assert outcome.stop_reason is StopReason.GUARD
    assert outcome.status is AgentStatus.STOPPED


@pytest.mark.parametrize("reason", list(StopReason))
def test_b008_a_forbid_with_a_reason_keeps_it(reason):
    assert resolve([vote(FORBID, reason=reason)]).stop_reason is reason


def test_b009_of_two_equally_urgent_forbids_the_first_is_the_resolver():
    outcome = resolve(
        [
            vote(ALLOW, "Zero"),
            vote(FORBID, "First", StopReason.GUARD),
            vote(FORBID, "Second", StopReason.GUARD),
        ]
    )

    assert outcome.resolved_by == "First"
    assert outcome.forbidding_criterion == "First"


def test_b009_forbidding_criterion_is_the_first_forbid_even_if_a_later_one_is_more_urgent():
    outcome = resolve(
        [
            vote(FORBID, "Limit", StopReason.STEPS_LIMIT),
            vote(FORBID, "User", StopReason.USER_REQUESTED),
        ]
    )

    assert outcome.forbidding_criterion == "Limit"
    assert outcome.resolved_by == "User"
    assert outcome.stop_reason is StopReason.USER_REQUESTED
    assert outcome.resolving_evaluation == outcome.evaluations[1]


def test_two_votes_of_one_name_the_more_urgent_one_is_the_resolving_evaluation():
    outcome = resolve(
        [vote(FORBID, "hook", StopReason.GUARD), vote(FORBID, "hook", StopReason.ERROR)]
    )

    assert outcome.resolving_evaluation == outcome.evaluations[1]


@pytest.mark.parametrize("decision", [REQUEST, ALLOW])
def test_b010_an_outcome_that_goes_on_has_no_stop_reason(decision):
    outcome = resolve([vote(decision)])

    assert outcome.stop_reason is None
    assert outcome.status is AgentStatus.IN_PROGRESS
    assert outcome.to_dict()["stop_reason"] is None


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (FORBID, "MyCheck forbids going on"),
        (REQUEST, "MyCheck asks to go on"),
        (ALLOW_STOP, "MyCheck allows stopping"),
        (ALLOW, "MyCheck allows going on"),
    ],
)
def test_b011_a_bare_decision_gets_words_from_its_name_and_verb(decision, text):
    assert ContinuationEvaluation.from_decision("MyCheck", decision).reason == text


def test_decisions_are_the_wire_words():
    assert [str(d) for d in ContinuationDecision] == ["forbid", "request", "allow_stop", "allow"]


def test_b026_stop_reasons_and_their_order():
    assert [str(reason) for reason in StopReason] == ORDERED_REASONS
    assert [reason.urgency for reason in StopReason] == list(range(12))


@pytest.mark.parametrize("index", range(len(ORDERED_REASONS) - 1))
def test_b026_the_more_urgent_reason_wins_in_either_order(index):
    urgent, other = (StopReason(word) for word in ORDERED_REASONS[index : index + 2])

    for votes in permutations([vote(FORBID, "A", urgent), vote(FORBID, "B", other)]):
        assert resolve(votes).stop_reason is urgent


@pytest.mark.parametrize(("reason", "status"), list(STATUS_AFTER.items()))
def test_b029_the_final_status_follows_the_reason(reason, status):
    assert AgentStatus.after(StopReason(reason)) == status
    assert resolve([vote(FORBID, reason=StopReason(reason))]).status == status


def test_b029_every_reason_is_mapped():
    assert set(STATUS_AFTER) == {str(reason) for reason in StopReason}


def test_limits_are_the_four_budgets():
    limits = {str(reason) for reason in StopReason if reason.is_limit}

    assert limits == {"steps_limit", "token_limit", "time_limit", "cost_limit"}


def test_the_longest_wait_that_was_asked_for_counts():
    outcome = resolve([vote(REQUEST, delay_seconds=2.0), vote(REQUEST, delay_seconds=5.0)])

    assert outcome.delay_seconds == 5.0


def test_a_stop_waits_for_nothing():
    outcome = resolve([vote(REQUEST, delay_seconds=5.0), vote(FORBID)])

    assert outcome.delay_seconds == 0.0


def test_evaluation_for_finds_a_vote_by_name():
    outcome = resolve([vote(ALLOW, "One"), vote(REQUEST, "Two")])

    assert outcome.evaluation_for("Two") is outcome.evaluations[1]
    assert outcome.evaluation_for("Three") is None


votes_strategy = st.lists(
    st.builds(
        vote,
        st.sampled_from(ContinuationDecision),
        st.sampled_from(["A", "B", "C"]),
        st.none() | st.sampled_from(StopReason),
    ),
    max_size=8,
)


@given(votes_strategy)
def test_the_rule_of_the_specification_holds_for_any_votes(votes):
    outcome = resolve(votes)
    decisions = {v.decision for v in votes}

    if FORBID in decisions:
        reasons = [v.stop_reason or StopReason.GUARD for v in votes if v.decision is FORBID]
        assert outcome.stop_reason is min(reasons, key=lambda reason: reason.urgency)
    elif REQUEST in decisions:
        assert outcome.should_continue
    elif ALLOW_STOP in decisions or not votes:
        assert outcome.stop_reason is StopReason.COMPLETED
    else:
        assert outcome.should_continue
    assert outcome.evaluations == tuple(votes)
    if outcome.resolved_by != AGGREGATE:
        assert outcome.resolving_evaluation is not None
        assert outcome.resolving_evaluation.decision is outcome.decision
