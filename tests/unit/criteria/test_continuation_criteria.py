"""The list of criteria: asking all, agreeing with itself, and limits that nobody runs into."""

import pytest

from stepwell import (
    AgentState,
    ConfigurationError,
    ContinuationCriteria,
    ContinuationDecision,
    ContinuationEvaluation,
    Message,
    StopReason,
)
from stepwell.continuation import ContinueRequest, StopSignal
from stepwell.criteria import StepsLimit, TokenUsageLimit, ToolCallPresenceCheck
from stepwell.state import AgentStep

FORBID, REQUEST, ALLOW_STOP, ALLOW = ContinuationDecision


class Votes:
    """A criterion that always votes the same."""

    def __init__(self, vote):
        self._vote = vote

    def evaluate(self, state):
        return self._vote


def test_b001_no_criteria_stop_as_completed():
    outcome = ContinuationCriteria().evaluate(AgentState.empty())

    assert outcome.stop_reason is StopReason.COMPLETED
    assert outcome.decision is ALLOW_STOP
    assert outcome.evaluations == ()


def test_b011_a_bare_decision_is_told_with_the_short_name():
    outcome = ContinuationCriteria(Votes(FORBID)).evaluate(AgentState.empty())

    assert outcome.evaluations[0].criterion == "Votes"
    assert outcome.evaluations[0].reason == "Votes forbids going on"
    assert outcome.stop_reason is StopReason.GUARD


def test_a_vote_with_words_is_kept_as_it_is():
    vote = ContinuationEvaluation(
        criterion="Mine", decision=ALLOW, reason="all well", context={"n": 1}
    )

    assert ContinuationCriteria(Votes(vote)).evaluate(AgentState.empty()).evaluations == (vote,)


def test_when_makes_a_criterion_of_a_function_and_names_it_after_it():
    def is_tired(state):
        return FORBID if state.messages else ALLOW

    criteria = ContinuationCriteria.when(is_tired)

    assert criteria.can_continue(AgentState.empty())
    outcome = criteria.evaluate(AgentState.empty().with_user_message("hi"))
    assert outcome.resolved_by == "is_tired"


@pytest.mark.parametrize("decision", list(ContinuationDecision))
def test_evaluate_can_continue_and_decide_agree(decision):
    criteria = ContinuationCriteria(Votes(ALLOW), Votes(decision))
    state = AgentState.empty()

    outcome = criteria.evaluate(state)

    assert criteria.can_continue(state) is outcome.should_continue
    assert criteria.decide(state) is outcome.decision


def test_lists_of_criteria_are_flattened_in_order():
    one, two, three = Votes(ALLOW), Votes(ALLOW), Votes(ALLOW)

    criteria = ContinuationCriteria(one, ContinuationCriteria(two, ContinuationCriteria(three)))

    assert criteria.criteria == (one, two, three)
    assert ContinuationCriteria.from_(one, two).criteria == (one, two)


@pytest.mark.parametrize("wrong", [lambda state: ALLOW, "StepsLimit", None, StepsLimit])
def test_what_is_no_criterion_is_a_construction_error(wrong):
    with pytest.raises(ConfigurationError, match="not a criterion"):
        ContinuationCriteria(wrong)


@pytest.mark.parametrize("wrong", [True, None, "allow", "nonsense"])
def test_a_vote_that_is_no_decision_is_refused_with_the_name_of_the_criterion(wrong):
    with pytest.raises(TypeError, match="Votes voted"):
        ContinuationCriteria(Votes(wrong)).evaluate(AgentState.empty())


def test_signals_and_requests_of_the_state_join_the_votes(state_after):
    signal = StopSignal(reason=StopReason.GUARD, message="hot", source="sensor")
    request = ContinueRequest(source="critic")
    state = state_after().with_signal(signal).with_continue_request(request)

    outcome = ContinuationCriteria(Votes(ALLOW)).evaluate(state)

    assert [vote.criterion for vote in outcome.evaluations] == ["Votes", "sensor", "critic"]
    assert outcome.stop_reason is StopReason.GUARD
    assert outcome.resolved_by == "sensor"


class TestLimitOnTheLastStep:
    """A run that ends by itself on its last allowed step is completed, not cut off."""

    FINAL = AgentStep(messages=(Message.assistant("Done."),))

    def test_it_is_completed_and_the_limit_shows_as_allow(self, state_after):
        outcome = ContinuationCriteria(StepsLimit(1), ToolCallPresenceCheck()).evaluate(
            state_after(self.FINAL)
        )

        assert outcome.stop_reason is StopReason.COMPLETED
        vote = outcome.evaluation_for("StepsLimit")
        assert vote.decision is ALLOW
        assert vote.stop_reason is None
        assert vote.context == {"current": 1, "maximum": 1}
        assert "nothing asked for another step" in vote.reason

    def test_a_request_brings_the_limit_back(self, state_after):
        criteria = ContinuationCriteria(StepsLimit(1), ToolCallPresenceCheck(), Votes(REQUEST))

        assert criteria.evaluate(state_after(self.FINAL)).stop_reason is StopReason.STEPS_LIMIT

    def test_without_a_vote_that_allows_stopping_the_limit_counts(self, state_after):
        criteria = ContinuationCriteria(StepsLimit(1), Votes(ALLOW))

        assert criteria.evaluate(state_after(self.FINAL)).stop_reason is StopReason.STEPS_LIMIT

    def test_a_more_urgent_forbid_is_not_softened(self, state_after):
        criteria = ContinuationCriteria(StepsLimit(1), ToolCallPresenceCheck(), Votes(FORBID))

        assert criteria.evaluate(state_after(self.FINAL)).stop_reason is StopReason.GUARD


def test_before_a_step_only_limits_are_asked_that_can_change_between_steps(state_after):
    seen = 0
    criteria = ContinuationCriteria(
        Votes(FORBID), StepsLimit(1), TokenUsageLimit(1, counter=lambda _: seen)
    )

    assert not criteria.is_limit_reached(state_after(AgentStep()))
    seen = 1
    assert criteria.is_limit_reached(state_after(AgentStep()))
