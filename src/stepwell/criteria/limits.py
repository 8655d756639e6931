"""Limits on steps, tokens, cost and time. Each takes its number, and a counter if you have one.

A limit is reached when the counted amount is equal to or above it. What was granted to an
execution with ``with_budget_granted`` is added to the limit.
"""

from collections.abc import Callable

from stepwell.clock import Clock, SystemClock
from stepwell.continuation import ContinuationDecision, ContinuationEvaluation, StopReason
from stepwell.errors import ConfigurationError
from stepwell.state import NOTHING, AgentState

Counter = Callable[[AgentState], float]
DEFAULT_MAX_STEPS = 20
DEFAULT_MAX_TOKENS = 1_000_000
DEFAULT_TIMEOUT = 300.0


class _Limit:
    """What the limits share: compare a counted amount with a maximum and say so in words."""

    kind: str
    """The field of a budget that grants more of it."""
    unit: str
    digits = ""
    """How the counted amount is shown, as a format."""
    names = ("current", "maximum")
    """What the two numbers are called in the vote's context."""
    stop_reason: StopReason
    hint: str
    runs_on_clock = False
    """Whether the amount grows while no step runs."""
    default: float | None = None
    """What an agent has that was given no number; the hint then says so."""

    def __init__(self, maximum: float, counter: Counter | None = None) -> None:
        self.maximum = maximum
        self.current: Counter = counter or self.count
        self.changes_only_in_steps = counter is None and not self.runs_on_clock
        """Whether a vote after a step still holds before the next one."""
        self._name = type(self).__name__
        self._of_maximum = self._of(maximum)

    def is_reached(self, state: AgentState) -> bool:
        """Whether the budget is used up."""
        return self.current(state) >= self.maximum_for(state)

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """Forbid once the counted amount has reached the maximum."""
        execution, current, maximum = state.execution, self.current(state), self.maximum
        if execution is not None and execution.granted is not NOTHING:
            maximum = self.maximum_for(state)
        reached = current >= maximum
        of_maximum = self._of_maximum if maximum == self.maximum else self._of(maximum)
        return ContinuationEvaluation(
            criterion=self._name,
            decision=ContinuationDecision.FORBID if reached else ContinuationDecision.ALLOW,
            reason=f"{current:{self.digits}}{of_maximum}",
            context={self.names[0]: current, self.names[1]: maximum},
            stop_reason=self.stop_reason if reached else None,
            hint=self._what_to_change() if reached else None,
        )

    def _what_to_change(self) -> str:
        if self.maximum != self.default:
            return self.hint
        return f"{self.maximum:,.12g} {self.unit} is the default limit; {self.hint}"

    def _of(self, maximum: float) -> str:
        return f" of {maximum:.12g} {self.unit} used"

    def maximum_for(self, state: AgentState) -> float:
        """The maximum with what was granted to this execution."""
        execution = state.execution
        if execution is None or execution.granted is NOTHING:
            return self.maximum
        return self.maximum + getattr(execution.granted, self.kind)

    def count(self, state: AgentState) -> float:
        """The amount used, read from the state."""
        raise NotImplementedError


class StepsLimit(_Limit):
    """At most so many steps in one execution; 0 means that no step runs.

    >>> StepsLimit(3).evaluate(AgentState.empty()).reason
    '0 of 3 steps used'
    """

    kind = "steps"
    unit = "steps"
    default = DEFAULT_MAX_STEPS
    stop_reason = StopReason.STEPS_LIMIT
    hint = (
        "raise it with with_max_steps(n) or Agent(max_steps=n), or choose what happens at a limit "
        "with at_limit (stop, wrap_up, pause, raise)."
    )

    def __init__(self, maximum: int, counter: Counter | None = None) -> None:
        super().__init__(_whole(maximum, "StepsLimit"), counter)

    def count(self, state: AgentState) -> float:
        """Steps of the current execution."""
        return state.step_count


class TokenUsageLimit(_Limit):
    """At most so many tokens, input and output together, in one execution."""

    kind = "tokens"
    unit = "tokens"
    default = DEFAULT_MAX_TOKENS
    stop_reason = StopReason.TOKEN_LIMIT
    hint = "raise it with with_max_tokens(n) or Agent(max_tokens=n)."

    def __init__(self, maximum: int, counter: Counter | None = None) -> None:
        super().__init__(_whole(maximum, "TokenUsageLimit"), counter)

    def count(self, state: AgentState) -> float:
        """Tokens of the current execution."""
        return state.usage.total_tokens


class CostLimit(_Limit):
    """At most so much money in one execution."""

    kind = "cost"
    unit = "cost"
    digits = ".6g"
    stop_reason = StopReason.COST_LIMIT
    hint = "raise it with with_max_cost(amount) or Agent(max_cost=amount)."

    def __init__(self, maximum: float, counter: Counter | None = None) -> None:
        super().__init__(_not_negative(maximum, "CostLimit"), counter)

    def count(self, state: AgentState) -> float:
        """Cost of the current execution."""
        return state.cost


class ExecutionTimeLimit(_Limit):
    """At most so many seconds since the run began, by a monotonic clock.

    A state that was created days ago does not count: each run restarts the clock.
    """

    kind = "seconds"
    unit = "seconds"
    runs_on_clock = True
    default = DEFAULT_TIMEOUT
    digits = ".3f"
    stop_reason = StopReason.TIME_LIMIT
    hint = (
        "raise it with with_timeout(seconds) or Agent(timeout=seconds); for work that pauses use "
        "with_cumulative_timeout(seconds), which counts active time only."
    )

    def __init__(
        self, maximum: float, counter: Counter | None = None, *, clock: Clock | None = None
    ) -> None:
        super().__init__(_positive(maximum, "ExecutionTimeLimit"), counter)
        self._clock = clock or SystemClock()

    def count(self, state: AgentState) -> float:
        """Seconds since the run began; none if it has not, all since creation if unknown."""
        execution = state.execution
        if execution is None:
            return 0.0
        if execution.entered_monotonic is not None:
            return self._clock.monotonic() - execution.entered_monotonic
        return (self._clock.now() - state.created_at).total_seconds()


class CumulativeExecutionTimeLimit(_Limit):
    """At most so many seconds of active work, over all executions and pauses of a state."""

    kind = "seconds"
    unit = "active seconds"
    digits = ".3f"
    names = ("cumulative_seconds", "max_seconds")
    stop_reason = StopReason.TIME_LIMIT
    hint = "raise it with with_cumulative_timeout(seconds) or Agent(cumulative_timeout=seconds)."

    def __init__(self, maximum: float, counter: Counter | None = None) -> None:
        super().__init__(_positive(maximum, "CumulativeExecutionTimeLimit"), counter)

    def count(self, state: AgentState) -> float:
        """Seconds spent in steps."""
        return state.active_seconds


def _not_negative(maximum: float, name: str) -> float:
    if not _is_number(maximum) or not maximum >= 0:
        raise ConfigurationError(f"{name} wants a number of 0 or more, got {maximum!r}")
    return maximum


def _whole(maximum: int, name: str) -> int:
    if not isinstance(maximum, int) or isinstance(maximum, bool) or maximum < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{name} wants a whole number of 0 or more, got {maximum!r}")
    return maximum


def _positive(maximum: float, name: str) -> float:
    if not _is_number(maximum) or not maximum > 0:
        raise ConfigurationError(f"{name} wants seconds above 0, got {maximum!r}")
    return maximum


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
