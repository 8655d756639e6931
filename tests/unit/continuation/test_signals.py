"""Signals and continue requests: as votes, as data, and who consumes whom."""

import pytest

from stepwell import Cancellation, ContinuationDecision, StopReason
from stepwell.continuation import AgentStop, ContinueRequest, StopSignal, resolve, votes_of

HARD = ("error", "user_requested", "steps_limit", "token_limit", "time_limit", "cost_limit")
SOFT = ("stop_requested", "input_required", "guard", "finish_reason", "completed")


def signal(reason="stop_requested", source="hook", message="enough"):
    return StopSignal(reason=StopReason(reason), message=message, source=source)


def test_b028_signal_to_dict_and_back():
    given = StopSignal(
        reason=StopReason.GUARD, message="too many", context={"n": 3}, source="MyGuard"
    )

    assert given.to_dict() == {
        "reason": "guard",
        "message": "too many",
        "context": {"n": 3},
        "source": "MyGuard",
    }
    assert StopSignal.from_dict(given.to_dict()) == given


def test_b028_user_cancellation_has_empty_message_and_context():
    cancelled = StopSignal.user_requested()

    assert cancelled.reason is StopReason.USER_REQUESTED
    assert cancelled.message == ""
    assert cancelled.context == {}


def test_a_signal_is_a_forbid_with_its_words_numbers_and_source():
    given = StopSignal(reason=StopReason.GUARD, message="too many", context={"n": 3}, source="Me")
    vote = given.as_evaluation()

    assert vote.criterion == "Me"
    assert vote.decision is ContinuationDecision.FORBID
    assert vote.reason == "too many"
    assert vote.context == {"n": 3}
    assert vote.stop_reason is StopReason.GUARD


def test_a_signal_without_words_or_source_still_says_something():
    vote = StopSignal(reason=StopReason.GUARD).as_evaluation()

    assert vote.criterion == "StopSignal"
    assert "guard" in vote.reason


@pytest.mark.parametrize("reason", SOFT)
def test_b040_a_request_consumes_a_signal_it_names(reason):
    votes = votes_of([signal(reason, "a")], [ContinueRequest(source="me", consumes=("a",))])

    outcome = resolve(votes)

    assert outcome.should_continue
    assert outcome.resolved_by == "me"
    assert votes[0].criterion == "a"
    assert votes[0].decision is ContinuationDecision.ALLOW
    assert "consumed by me" in votes[0].reason


@pytest.mark.parametrize("reason", HARD)
def test_b040_a_request_never_consumes_an_error_a_cancellation_or_a_hard_limit(reason):
    votes = votes_of([signal(reason, "a")], [ContinueRequest(source="me", consumes=("a",))])

    assert resolve(votes).stop_reason == reason


def test_b040_a_request_consumes_only_what_it_names():
    signals = [signal("guard", "a"), signal("stop_requested", "b")]

    outcome = resolve(votes_of(signals, [ContinueRequest(source="me", consumes=("a",))]))

    assert outcome.stop_reason is StopReason.STOP_REQUESTED
    assert outcome.resolved_by == "b"
    assert [vote.decision for vote in outcome.evaluations] == ["allow", "forbid", "request"]


def test_b040_a_request_that_names_nothing_consumes_nothing():
    outcome = resolve(votes_of([signal(source="a")], [ContinueRequest(source="me")]))

    assert outcome.stop_reason is StopReason.STOP_REQUESTED


def test_a_request_has_default_words():
    vote = ContinueRequest(source="critic").as_evaluation()

    assert vote.decision is ContinuationDecision.REQUEST
    assert vote.reason == "critic asks for one more step"


def test_agent_stop_carries_a_signal_made_of_its_arguments():
    stop = AgentStop("guard", "too hot", source="sensor", context={"celsius": 90})

    assert stop.signal == StopSignal(
        reason=StopReason.GUARD, message="too hot", source="sensor", context={"celsius": 90}
    )
    assert str(stop) == "too hot"


def test_agent_stop_defaults_to_stop_requested():
    assert AgentStop().signal.reason is StopReason.STOP_REQUESTED
    assert str(AgentStop()) == "stop_requested"


def test_agent_stop_takes_a_ready_signal():
    given = signal("guard")

    assert AgentStop(given).signal is given


def test_agent_stop_takes_a_text_as_its_message():
    stop = AgentStop("all done")
    assert (stop.signal.reason, stop.signal.message) == (StopReason.STOP_REQUESTED, "all done")


def test_agent_stop_refuses_an_unknown_reason_and_lists_the_known():
    with pytest.raises(ValueError, match="'boredom' is not a stop reason; known: error, user_req"):
        AgentStop("boredom", "nothing happens")


def test_a_signal_written_with_a_plain_word_is_the_same_signal():
    assert StopSignal(reason="guard") == StopSignal(reason=StopReason.GUARD)
    with pytest.raises(ValueError, match="known: error"):
        StopSignal(reason="boredom")


class TestCancellation:
    def test_starts_unset_and_stays_set(self):
        cancellation = Cancellation()
        assert not cancellation.requested
        assert cancellation.signal is None

        cancellation.request("closed the tab", source="browser")

        assert cancellation.requested
        assert cancellation.signal == StopSignal.user_requested("closed the tab", source="browser")

    def test_only_the_first_request_counts(self):
        cancellation = Cancellation()
        told = []
        cancellation.subscribe(told.append)

        cancellation.request("first")
        cancellation.request("second")

        assert [given.message for given in told] == ["first"]
        assert cancellation.signal.message == "first"

    def test_an_unsubscribed_listener_is_not_told(self):
        cancellation = Cancellation()
        told = []
        cancellation.subscribe(told.append)
        cancellation.unsubscribe(told.append)

        cancellation.request()

        assert told == []
