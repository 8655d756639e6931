"""What a run may spend. None means no limit of that kind."""

from math import inf
from typing import TypeVar

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.messages import Usage

Number = TypeVar("Number", int, float)
NO_USAGE = Usage()


class Budget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps, tokens, seconds and cost. A subagent is given what its parent has left.

    >>> Budget(steps=10, tokens=500).capped_by(Budget(steps=3, seconds=60.0))
    Budget(steps=3, tokens=500, seconds=60.0, cost=None)
    """

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for kind in ("steps", "tokens", "seconds", "cost"):
            amount = getattr(self, kind)
            if amount is None:
                continue
            if isinstance(amount, bool) or not isinstance(amount, int | float):
                raise ConfigurationError(f"a budget of {kind} is a number, got {amount!r:.80}")
            if not 0 <= amount < inf:
                word = "negative" if amount < 0 else "no limit"
                raise ConfigurationError(
                    f"a budget of {amount} {kind} is {word}; use 0 or more, or None for no limit"
                )

    def after(
        self, *, steps: int = 0, usage: Usage = NO_USAGE, seconds: float = 0.0, cost: float = 0.0
    ) -> "Budget":
        """What is left after spending that much; never below zero."""
        return Budget(
            steps=_subtract(self.steps, steps),
            tokens=_subtract(self.tokens, usage.total_tokens),
            seconds=_subtract(self.seconds, seconds),
            cost=_subtract(self.cost, cost),
        )

    def capped_by(self, other: "Budget") -> "Budget":
        """The tighter of the two, for each kind."""
        return Budget(
            steps=_tighter(self.steps, other.steps),
            tokens=_tighter(self.tokens, other.tokens),
            seconds=_tighter(self.seconds, other.seconds),
            cost=_tighter(self.cost, other.cost),
        )

    def plus(self, other: "Budget") -> "Budget":
        """Both together; no limit plus anything stays no limit."""
        return Budget(
            steps=_sum(self.steps, other.steps),
            tokens=_sum(self.tokens, other.tokens),
            seconds=_sum(self.seconds, other.seconds),
            cost=_sum(self.cost, other.cost),
        )


NOTHING = Budget(steps=0, tokens=0, seconds=0.0, cost=0.0)
"""The budget that adds nothing."""

UNLIMITED = Budget()
"""The budget that limits nothing."""


def _subtract(budget: Number | None, spent: Number) -> Number | None:
    return None if budget is None else max(budget - spent, spent - spent)


def _tighter(one: Number | None, other: Number | None) -> Number | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _sum(one: Number | None, other: Number | None) -> Number | None:
    return None if one is None or other is None else one + other
