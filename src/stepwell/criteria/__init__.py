"""What votes on whether a run goes on: limits, checks, the error policy, and own criteria."""

from stepwell.criteria.checks import FinishReasonCheck, ResponseContentCheck, ToolCallPresenceCheck
from stepwell.criteria.criterion import (
    ContinuationCriteria,
    Criterion,
    Limit,
    cast_vote,
    criterion_name,
)
from stepwell.criteria.error_policy import (
    AgentErrorContextResolver,
    ErrorContext,
    ErrorContextResolver,
    ErrorHandling,
    ErrorPolicy,
    ErrorPolicyCriterion,
)
from stepwell.criteria.limits import (
    CostLimit,
    CumulativeExecutionTimeLimit,
    ExecutionTimeLimit,
    StepsLimit,
    TokenUsageLimit,
)
from stepwell.criteria.repetition import RepeatedCallCheck

__all__ = [
    "AgentErrorContextResolver",
    "ContinuationCriteria",
    "CostLimit",
    "Criterion",
    "CumulativeExecutionTimeLimit",
    "ErrorContext",
    "ErrorContextResolver",
    "ErrorHandling",
    "ErrorPolicy",
    "ErrorPolicyCriterion",
    "ExecutionTimeLimit",
    "FinishReasonCheck",
    "Limit",
    "RepeatedCallCheck",
    "ResponseContentCheck",
    "StepsLimit",
    "TokenUsageLimit",
    "ToolCallPresenceCheck",
    "cast_vote",
    "criterion_name",
]
