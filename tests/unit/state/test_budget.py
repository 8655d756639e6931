"""Budgets: what is left, the tighter of two, and both together."""

import pytest

from stepwell import ConfigurationError, Usage
from stepwell.state import Budget

SPENT = {
    "steps": 2,
    "usage": Usage(input_tokens=30, output_tokens=10),
    "seconds": 1.5,
    "cost": 0.25,
}


def test_what_is_left_after_spending():
    budget = Budget(steps=10, tokens=100, seconds=60.0, cost=1.0)

    assert budget.after(**SPENT) == Budget(steps=8, tokens=60, seconds=58.5, cost=0.75)


def test_nothing_is_left_below_zero():
    budget = Budget(steps=1, tokens=1, seconds=1.0, cost=0.1)

    assert budget.after(**SPENT) == Budget(steps=0, tokens=0, seconds=0.0, cost=0.0)


def test_no_limit_stays_no_limit():
    assert Budget().after(**SPENT) == Budget()


def test_the_tighter_of_two_for_each_kind():
    one = Budget(steps=10, tokens=500, cost=1.0)
    other = Budget(steps=3, seconds=60.0, cost=2.0)

    expected = Budget(steps=3, tokens=500, seconds=60.0, cost=1.0)
    assert one.capped_by(other) == expected
    assert other.capped_by(one) == expected


def test_a_cap_of_zero_is_a_cap():
    assert Budget(steps=5).capped_by(Budget(steps=0)) == Budget(steps=0)


def test_sums_and_no_limit_plus_anything_is_no_limit():
    total = Budget(steps=1, tokens=10).plus(Budget(steps=2, tokens=5, seconds=1.0))

    assert total == Budget(steps=3, tokens=15)


@pytest.mark.parametrize("kind", ["steps", "tokens", "seconds", "cost"])
@pytest.mark.parametrize("amount", [-1, float("inf"), float("nan")])
def test_a_budget_that_limits_nothing_is_a_construction_error(kind, amount):
    with pytest.raises(ConfigurationError, match=kind):
        Budget(**{kind: amount})
