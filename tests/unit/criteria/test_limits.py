"""Limits on steps, tokens, cost and time, asked directly."""

import pytest

from stepwell import Agent, AgentState, ConfigurationError, ContinuationDecision, StopReason, Usage
from stepwell.criteria import (
    CostLimit,
    CumulativeExecutionTimeLimit,
    ExecutionTimeLimit,
    StepsLimit,
    TokenUsageLimit,
)
from stepwell.state import AgentStep
from stepwell.testing import FakeClock, MockTool, ScriptedModel, call

STEP = AgentStep()


@pytest.mark.parametrize(("taken", "decision"), [(2, "allow"), (3, "forbid"), (4, "forbid")])
def test_b014_steps_limit_forbids_at_n(state_after, taken, decision):
    vote = StepsLimit(3).evaluate(state_after(*[STEP] * taken))

    assert vote.decision == decision
    assert vote.stop_reason == ("steps_limit" if decision == "forbid" else None)


def test_b015_a_steps_limit_of_zero_forbids_before_the_first_step(state_after):
    limit = StepsLimit(0)

    assert limit.is_reached(state_after())
    assert limit.evaluate(state_after()).stop_reason is StopReason.STEPS_LIMIT


@pytest.mark.parametrize(("used", "reached"), [(99, False), (100, True), (101, True)])
def test_b017_token_usage_exactly_at_the_limit_forbids(state_after, used, reached):
    state = state_after(AgentStep(usage=Usage(input_tokens=60, output_tokens=used - 60)))

    vote = TokenUsageLimit(100).evaluate(state)

    assert (vote.decision is ContinuationDecision.FORBID) is reached
    assert vote.stop_reason == ("token_limit" if reached else None)
    assert vote.context == {"current": used, "maximum": 100}


def test_token_usage_is_summed_over_the_steps(state_after):
    step = AgentStep(usage=Usage(input_tokens=40, output_tokens=10))

    assert not TokenUsageLimit(101).is_reached(state_after(step, step))
    assert TokenUsageLimit(100).is_reached(state_after(step, step))


@pytest.mark.parametrize(("spent", "reached"), [(0.24, False), (0.25, True), (0.3, True)])
def test_cost_limit_forbids_at_its_amount(state_after, spent, reached):
    vote = CostLimit(0.25).evaluate(state_after(AgentStep(cost=spent)))

    assert (vote.stop_reason is StopReason.COST_LIMIT) is reached
    assert vote.context == {"current": spent, "maximum": 0.25}


def test_b019_the_vote_holds_the_numbers_and_names_the_guard(state_after):
    vote = StepsLimit(2).evaluate(state_after(STEP, STEP))

    assert vote.context == {"current": 2, "maximum": 2}
    assert vote.criterion == "StepsLimit"
    assert vote.reason == "2 of 2 steps used"
    assert "with_max_steps" in vote.hint


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout": None}, "20 steps is the default limit; raise it with with_max_steps(n)"),
        ({"max_steps": 30, "timeout": None}, "What to change: raise it with with_max_steps(n)"),
        ({"max_steps": None}, "300 seconds is the default limit; raise it with with_timeout"),
        (
            {"max_steps": None, "timeout": None},
            "1,000,000 tokens is the default limit; raise it with with_max_tokens(n)",
        ),
    ],
)
async def test_a_default_that_stops_a_run_says_that_it_is_one(options, says):
    clock = FakeClock()

    def work() -> str:
        clock.advance(20)
        return "done"

    usage = Usage(input_tokens=20_000)
    agent = Agent(
        ScriptedModel(lambda _: call("work"), usage=usage),
        tools=[MockTool("work", work, effect="pure")],
        clock=clock,
        **options,
    )
    state = await agent.run("Go")

    assert says in state.explain()


@pytest.mark.parametrize(
    "limit",
    [
        StepsLimit(5, lambda state: 5),
        TokenUsageLimit(5, lambda state: 5),
        CostLimit(5.0, lambda state: 5),
        ExecutionTimeLimit(5.0, lambda state: 5),
        CumulativeExecutionTimeLimit(5.0, lambda state: 5),
    ],
)
def test_b020_a_counter_from_the_caller_replaces_the_state(state_after, limit):
    state = state_after()

    assert limit.is_reached(state)
    assert limit.evaluate(state).decision is ContinuationDecision.FORBID
    assert 5 in limit.evaluate(state).context.values()


def test_b020_the_counter_is_given_the_state(state_after):
    limit = StepsLimit(2, lambda state: len(state.messages))

    assert not limit.is_reached(state_after(STEP, STEP))
    assert limit.is_reached(state_after().with_user_message("a").with_user_message("b"))


@pytest.mark.parametrize("limit", [ExecutionTimeLimit, CumulativeExecutionTimeLimit])
@pytest.mark.parametrize("seconds", [0, -1, -0.5, True, "60", None])
def test_b080_a_time_limit_of_nothing_is_a_construction_error(limit, seconds):
    with pytest.raises(ConfigurationError, match=limit.__name__):
        limit(seconds)


@pytest.mark.parametrize("limit", [StepsLimit, TokenUsageLimit, CostLimit])
@pytest.mark.parametrize("amount", [-1, True, "3", None])
def test_other_limits_refuse_what_is_no_number_of_zero_or_more(limit, amount):
    with pytest.raises(ConfigurationError, match=limit.__name__):
        limit(amount)


@pytest.mark.parametrize(
    ("limit", "passed", "decision"), [(60, 61, "forbid"), (60, 60, "forbid"), (30, 29, "allow")]
)
def test_b079_wall_time_since_the_run_began(state_after, limit, passed, decision):
    clock = FakeClock()
    state = state_after().with_run_entered(clock.monotonic())

    clock.advance(passed)
    vote = ExecutionTimeLimit(limit, clock=clock).evaluate(state)

    assert vote.decision == decision
    assert vote.stop_reason == ("time_limit" if decision == "forbid" else None)
    assert vote.context == {"current": passed, "maximum": limit}


def test_b081_days_before_the_run_do_not_count(state_after):
    clock = FakeClock()
    state = state_after()
    clock.advance(5 * 24 * 3600)

    state = state.with_run_entered(clock.monotonic())

    assert not ExecutionTimeLimit(60, clock=clock).is_reached(state)


def test_b083_without_an_execution_start_the_start_of_the_state_counts(state_after):
    clock = FakeClock()
    state = state_after()
    limit = ExecutionTimeLimit(60, clock=clock)

    clock.advance(59)
    assert not limit.is_reached(state)
    clock.advance(1)
    assert limit.is_reached(state)


def test_b088_a_time_limit_asked_before_any_run_has_nothing_to_say():
    clock = FakeClock()
    state = AgentState.empty(at=clock.now())
    clock.advance(3600)

    vote = ExecutionTimeLimit(60, clock=clock).evaluate(state)

    assert vote.decision is ContinuationDecision.ALLOW
    assert vote.stop_reason is None


@pytest.mark.parametrize(("active", "decision"), [(0.5, "allow"), (1.0, "forbid")])
def test_b085_active_time_equal_to_the_limit_forbids_with_both_numbers(
    state_after, active, decision
):
    vote = CumulativeExecutionTimeLimit(1).evaluate(state_after(STEP, seconds=active))

    assert vote.decision == decision
    assert vote.context == {"cumulative_seconds": active, "max_seconds": 1}


def test_b084_only_active_seconds_count_for_the_cumulative_limit(state_after):
    clock = FakeClock()
    state = state_after(STEP, seconds=0.5).with_run_entered(clock.monotonic())
    clock.advance(3600)

    assert not CumulativeExecutionTimeLimit(1).is_reached(state)


@pytest.mark.parametrize(
    ("limit", "grant"),
    [
        (StepsLimit(1), {"steps": 2}),
        (TokenUsageLimit(10), {"tokens": 5}),
        (CostLimit(1.0), {"cost": 0.5}),
        (CumulativeExecutionTimeLimit(2.0), {"seconds": 1.0}),
    ],
)
def test_what_was_granted_is_added_to_the_limit(state_after, limit, grant):
    state = state_after(AgentStep(usage=Usage(input_tokens=10), cost=1.0), seconds=2.0)
    assert limit.is_reached(state)

    granted = state.with_budget_granted(**grant)

    assert not limit.is_reached(granted)
    assert max(limit.evaluate(granted).context.values()) == limit.maximum + sum(grant.values())


def test_is_reached_and_evaluate_agree(state_after):
    for steps in range(4):
        state = state_after(*[STEP] * steps)
        limit = StepsLimit(2)
        forbids = limit.evaluate(state).decision is ContinuationDecision.FORBID
        assert limit.is_reached(state) is forbids
