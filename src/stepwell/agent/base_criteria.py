"""The criteria that every agent has, each made of a plan's settings. Plans, replays, docs and tests
read this one list."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from stepwell.criteria import (
    CostLimit,
    Criterion,
    CumulativeExecutionTimeLimit,
    ErrorPolicyCriterion,
    ExecutionTimeLimit,
    FinishReasonCheck,
    RepeatedCallCheck,
    StepsLimit,
    TokenUsageLimit,
    ToolCallPresenceCheck,
)
from stepwell.tools import Tools

if TYPE_CHECKING:
    from stepwell.agent.plan import AgentPlan


class BaseCriterion(Struct, frozen=True, eq=False):
    """A criterion and how a plan comes to it; None if the plan's settings leave it out."""

    kind: type
    make: "Callable[[AgentPlan, Tools], Criterion | None]"

    @property
    def name(self) -> str:
        """The name under which it votes."""
        return self.kind.__name__


def _steps_limit(plan: "AgentPlan", _: Tools) -> Criterion | None:
    return None if plan.max_steps is None else StepsLimit(plan.max_steps)


def _token_limit(plan: "AgentPlan", _: Tools) -> Criterion | None:
    return None if plan.max_tokens is None else TokenUsageLimit(plan.max_tokens)


def _cost_limit(plan: "AgentPlan", _: Tools) -> Criterion | None:
    return None if plan.max_cost is None else CostLimit(plan.max_cost)


def _time_limit(plan: "AgentPlan", _: Tools) -> Criterion | None:
    return None if plan.timeout is None else ExecutionTimeLimit(plan.timeout, clock=plan.clock)


def _active_time_limit(plan: "AgentPlan", _: Tools) -> Criterion | None:
    seconds = plan.cumulative_timeout
    return None if seconds is None else CumulativeExecutionTimeLimit(seconds)


def _repeated_calls(plan: "AgentPlan", tools: Tools) -> Criterion | None:
    stop_at = None if plan.repeated_calls is None else plan.repeated_calls.stop_at
    return None if stop_at is None else RepeatedCallCheck(stop_at, counts=tools.repetition_counts)


def _finish_reason(plan: "AgentPlan", _: Tools) -> Criterion | None:
    is_wanted = plan.has_base_criteria or plan.stop_on_finish_reasons
    return FinishReasonCheck(plan.stop_on_finish_reasons) if is_wanted else None


def _error_policy(plan: "AgentPlan", _: Tools) -> Criterion | None:
    is_wanted = plan.has_base_criteria or plan.error_policy or plan.max_retries is not None
    return ErrorPolicyCriterion(plan.effective_error_policy) if is_wanted else None


def _tool_calls(plan: "AgentPlan", _: Tools) -> Criterion | None:
    if not plan.has_base_criteria:
        return None
    return ToolCallPresenceCheck(max_tokens=plan.settings.max_tokens)


BASE_CRITERIA = (
    BaseCriterion(StepsLimit, _steps_limit),
    BaseCriterion(TokenUsageLimit, _token_limit),
    BaseCriterion(CostLimit, _cost_limit),
    BaseCriterion(ExecutionTimeLimit, _time_limit),
    BaseCriterion(CumulativeExecutionTimeLimit, _active_time_limit),
    BaseCriterion(RepeatedCallCheck, _repeated_calls),
    BaseCriterion(FinishReasonCheck, _finish_reason),
    BaseCriterion(ErrorPolicyCriterion, _error_policy),
    BaseCriterion(ToolCallPresenceCheck, _tool_calls),
)
"""In the order in which they vote."""
