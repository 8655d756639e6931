"""The error policy: presets, modifiers, the facts it judges, and how its criterion votes."""

import pytest

from stepwell import (
    AgentState,
    ConfigurationError,
    ContinuationDecision,
    ErrorPolicy,
    ModelError,
    StopReason,
)
from stepwell.backoff import Backoff
from stepwell.criteria import (
    AgentErrorContextResolver,
    ErrorContext,
    ErrorHandling,
    ErrorPolicyCriterion,
)
from stepwell.errors import ErrorType
from stepwell.state import AgentStep, ErrorInfo

STOP, RETRY, IGNORE = ErrorHandling


def failure(error_type="tool", tool_name=None, message="no", retry_after=None):
    return ErrorInfo(
        type=ErrorType(error_type),
        exception="ValueError",
        message=message,
        tool_name=tool_name,
        retry_after=retry_after,
    )


def failed(*error_types):
    return AgentStep(failures=tuple(failure(error_type) for error_type in error_types))


def context(error_type, consecutive=1, total=1):
    return ErrorContext(
        errors=(failure(error_type),), consecutive_failures=consecutive, total_failures=total
    )


def handlings(policy):
    return {str(kind): policy.evaluate(context(kind)) for kind in ErrorType}


def test_error_words_are_the_wire_words():
    assert [str(kind) for kind in ErrorType] == [
        "tool",
        "model",
        "validation",
        "rate_limit",
        "timeout",
        "unknown",
    ]
    assert [str(handling) for handling in ErrorHandling] == ["stop", "retry", "ignore"]


def test_b059_stop_on_any_error_stops_for_each_type():
    assert set(handlings(ErrorPolicy.stop_on_any_error()).values()) == {STOP}


@pytest.mark.parametrize(
    "policy", [ErrorPolicy.stop_on_any_error(), ErrorPolicy.retry_all(), ErrorPolicy()]
)
def test_b060_no_failure_is_ignored(policy):
    assert policy.evaluate(ErrorContext.none()) is IGNORE


def test_b061_retry_tool_errors_retries_the_first_failure():
    assert ErrorPolicy.retry_tool_errors(3).evaluate(context("tool")) is RETRY


@pytest.mark.parametrize(("failures", "handling"), [(1, RETRY), (2, RETRY), (3, STOP), (4, STOP)])
def test_retries_run_out_at_the_nth_failure_in_a_row(failures, handling):
    policy = ErrorPolicy.retry_tool_errors(3)

    assert policy.evaluate(context("tool", consecutive=failures, total=9)) is handling


def test_b063_retry_tool_errors_preset():
    assert handlings(ErrorPolicy.retry_tool_errors(3)) == {
        "tool": RETRY,
        "validation": RETRY,
        "rate_limit": RETRY,
        "timeout": RETRY,
        "model": STOP,
        "unknown": STOP,
    }
    assert ErrorPolicy.retry_tool_errors().max_retries == 3


def test_b064_ignore_tool_errors_preset():
    policy = ErrorPolicy.ignore_tool_errors()

    assert handlings(policy) == {
        "tool": IGNORE,
        "validation": IGNORE,
        "unknown": IGNORE,
        "rate_limit": RETRY,
        "timeout": RETRY,
        "model": STOP,
    }
    assert policy.max_retries > 0
    assert ErrorPolicy.ignore_tool_errors(7).max_retries == 7


def test_b065_retry_all_defaults_to_five():
    policy = ErrorPolicy.retry_all()

    assert policy.max_retries == 5
    assert set(handlings(policy).values()) == {RETRY}


def test_b065_modifiers_return_new_policies():
    policy = ErrorPolicy.retry_tool_errors(3)

    assert policy.with_max_retries(9).max_retries == 9
    assert policy.with_tool_error_handling("ignore").on_tool_error is IGNORE
    assert policy.with_handling("model", RETRY).on_model_error is RETRY
    assert policy.with_backoff(Backoff(initial=5)).backoff.initial == 5
    assert policy == ErrorPolicy.retry_tool_errors(3)


def test_a_modifier_changes_only_what_it_names():
    changed = ErrorPolicy.retry_tool_errors(3).with_handling("model", "retry")

    assert handlings(changed) == {**handlings(ErrorPolicy.retry_tool_errors(3)), "model": RETRY}


def test_negative_retries_are_a_construction_error():
    with pytest.raises(ConfigurationError, match="max_retries"):
        ErrorPolicy(max_retries=-1)
    with pytest.raises(ConfigurationError, match="max_retries"):
        ErrorPolicy.retry_all().with_max_retries(-1)


def test_of_several_errors_the_most_urgent_type_is_judged():
    policy = ErrorPolicy(on_rate_limit_error=RETRY, max_retries=3)
    mixed = ErrorContext(errors=(failure("tool"), failure("rate_limit")), consecutive_failures=1)

    assert mixed.type is ErrorType.RATE_LIMIT
    assert policy.evaluate(mixed) is RETRY
    assert policy.evaluate(ErrorContext(errors=mixed.errors[:1])) is STOP
    assert sorted(ErrorType, key=lambda kind: kind.urgency) == [
        *("rate_limit", "timeout", "model", "validation", "tool", "unknown")
    ]


def test_an_error_of_the_model_is_judged_before_one_of_a_tool():
    policy = ErrorPolicy.ignore_tool_errors(3)
    mixed = ErrorContext(errors=(failure("tool"), failure("model")), consecutive_failures=1)
    milder = ErrorContext(errors=(failure("tool"), failure("timeout")), consecutive_failures=1)

    assert policy.evaluate(mixed) is STOP
    assert policy.evaluate(milder) is RETRY


class TestCriterion:
    @pytest.mark.parametrize(
        ("policy", "decision", "reason"),
        [
            (ErrorPolicy.stop_on_any_error(), "forbid", StopReason.ERROR),
            (ErrorPolicy.retry_tool_errors(1), "forbid", StopReason.RETRY_LIMIT),
            (ErrorPolicy.ignore_tool_errors(), "allow", None),
            (ErrorPolicy.retry_tool_errors(3), "request", None),
        ],
    )
    def test_b066_the_verdict_becomes_a_vote(self, state_after, policy, decision, reason):
        vote = ErrorPolicyCriterion(policy).evaluate(state_after(failed("tool")))

        assert vote.decision == decision
        assert vote.stop_reason is reason

    def test_b067_the_context_holds_the_facts(self, state_after):
        raised = AgentStep(failures=(failure("tool", tool_name="look"),))
        state = state_after(raised, AgentStep(), raised, raised)

        vote = ErrorPolicyCriterion(ErrorPolicy.retry_tool_errors(4)).evaluate(state)

        assert vote.context == {
            "error_type": "tool",
            "consecutive_failures": 2,
            "total_failures": 3,
            "max_retries": 4,
            "handling": "retry",
            "tool_name": "look",
        }

    def test_a_successful_step_resets_the_count(self, state_after):
        policy = ErrorPolicy.retry_tool_errors(2)
        bad, good = failed("tool"), AgentStep()

        assert _decision(policy, state_after(bad, good, bad)) is ContinuationDecision.REQUEST
        assert _decision(policy, state_after(bad, good, bad, bad)) is ContinuationDecision.FORBID

    def test_an_old_error_before_a_good_step_is_no_error(self, state_after):
        policy = ErrorPolicy.stop_on_any_error()

        assert _decision(policy, state_after(failed("tool"), AgentStep())) == "allow"

    def test_no_step_is_no_error(self):
        vote = ErrorPolicyCriterion(ErrorPolicy()).evaluate(AgentState.empty())

        assert vote.decision is ContinuationDecision.ALLOW

    def test_the_words_name_tool_error_and_count(self, state_after):
        step = AgentStep(failures=(failure("tool", "look", "no door"),))

        vote = ErrorPolicyCriterion(ErrorPolicy.retry_tool_errors(3)).evaluate(state_after(step))

        assert "tool look failed with ValueError: no door" in vote.reason
        assert "1 of 3" in vote.reason

    def test_an_own_resolver_is_asked_instead_of_the_usual_one(self, state_after):
        class Blind:
            def resolve(self, state):
                return ErrorContext.none()

        criterion = ErrorPolicyCriterion(ErrorPolicy.stop_on_any_error(), Blind())

        assert criterion.evaluate(state_after(failed("tool"))).decision == "allow"

    def test_with_policy_is_the_constructor(self):
        policy = ErrorPolicy.retry_all()

        assert ErrorPolicyCriterion.with_policy(policy).policy is policy


class TestWaiting:
    POLICY = ErrorPolicy.retry_all(9).with_backoff(Backoff(jitter=0))

    def test_a_rate_limit_waits_longer_each_time(self, state_after):
        waits = [
            ErrorPolicyCriterion(self.POLICY)
            .evaluate(state_after(*[failed("rate_limit")] * count))
            .delay_seconds
            for count in (1, 2, 3)
        ]

        assert waits == [1.0, 2.0, 4.0]

    def test_chance_takes_up_to_a_quarter_off_and_is_the_same_for_the_same_state(self, state_after):
        state = state_after(failed("rate_limit"))
        criterion = ErrorPolicyCriterion(ErrorPolicy.retry_all(9))

        waits = {criterion.evaluate(state).delay_seconds for _ in range(3)}

        assert len(waits) == 1
        assert 0.75 <= waits.pop() <= 1.0

    def test_a_fault_of_the_provider_that_may_pass_waits_too(self, state_after):
        step = AgentStep.failed(ModelError("503", kind="server"))

        assert ErrorPolicyCriterion(self.POLICY).evaluate(state_after(step)).delay_seconds == 1.0

    def test_what_cannot_be_helped_by_trying_again_stops_at_once(self, state_after):
        step = AgentStep.failed(ModelError("401 wrong key", kind="authentication"))

        vote = ErrorPolicyCriterion(self.POLICY).evaluate(state_after(step))

        assert vote.decision == "forbid"
        assert vote.stop_reason == "error"
        assert "trying again can't help" in vote.reason
        assert "key" in vote.hint

    def test_the_wait_has_a_maximum(self):
        assert Backoff(initial=1, factor=10, maximum=30).delay(8) == 30

    def test_the_providers_word_comes_first(self, state_after):
        step = AgentStep(failures=(failure("rate_limit", retry_after=17.0),))

        vote = ErrorPolicyCriterion(self.POLICY).evaluate(state_after(step))

        assert vote.delay_seconds == 17.0

    def test_other_errors_do_not_wait(self, state_after):
        vote = ErrorPolicyCriterion(self.POLICY).evaluate(state_after(failed("tool")))

        assert vote.delay_seconds == 0.0

    def test_a_stop_does_not_wait(self, state_after):
        step = AgentStep(failures=(failure("rate_limit", retry_after=17.0),))

        assert ErrorPolicyCriterion(ErrorPolicy()).evaluate(state_after(step)).delay_seconds == 0.0


class TestClassification:
    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (ValueError("x"), "tool"),
            (TimeoutError("x"), "timeout"),
            (ModelError("x"), "model"),
            (ModelError("x", error_type=ErrorType.RATE_LIMIT), "rate_limit"),
        ],
    )
    def test_b070_exceptions_are_judged_by_their_class(self, error, expected):
        assert ErrorInfo.from_exception(error, ErrorType.TOOL).type == expected

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (RuntimeError("x"), "model"),
            (TimeoutError("x"), "timeout"),
            (ModelError("x", error_type=ErrorType.RATE_LIMIT), "rate_limit"),
            (ModelError("x", error_type=ErrorType.VALIDATION), "validation"),
        ],
    )
    def test_b071_an_error_of_the_step_itself_is_a_model_error_or_more_exact(self, error, expected):
        assert AgentStep.failed(error).errors[0].type == expected

    def test_the_resolver_reads_the_newest_step_and_the_running_counts(self, state_after):
        state = state_after(failed("tool"), failed("timeout", "tool"))

        facts = AgentErrorContextResolver().resolve(state)

        assert [error.type for error in facts.errors] == ["timeout", "tool"]
        assert facts.type is ErrorType.TIMEOUT
        assert (facts.consecutive_failures, facts.total_failures) == (2, 2)

    def test_the_longest_wait_of_several_errors_counts(self):
        facts = ErrorContext(errors=(failure(retry_after=2.0), failure(retry_after=5.0)))

        assert facts.retry_after == 5.0

    @pytest.mark.parametrize("word", ["30", "soon", [1], object(), float("nan")])
    def test_a_retry_after_that_is_no_number_of_seconds_is_not_taken_over(self, word):
        class Strange(Exception):
            retry_after = word

        assert ErrorInfo.from_exception(Strange(), ErrorType.TOOL).retry_after in (None, 30.0)


def _decision(policy, state):
    return ErrorPolicyCriterion(policy).evaluate(state).decision
