"""The deadline of a run: how much time its limits leave."""

from stepwell.criteria import (
    ContinuationCriteria,
    CumulativeExecutionTimeLimit,
    ExecutionTimeLimit,
)
from stepwell.state import AgentState


class Deadline:
    """The time limits among the criteria of an agent."""

    def __init__(self, criteria: ContinuationCriteria) -> None:
        kinds = (ExecutionTimeLimit, CumulativeExecutionTimeLimit)
        self._limits = tuple([c for c in criteria.criteria if isinstance(c, kinds)])

    def seconds_left(self, state: AgentState) -> float | None:
        """Return the seconds until the first limit; None without a time limit."""
        try:
            left = (limit.maximum_for(state) - limit.current(state) for limit in self._limits)
            return min(left, default=None)
        except Exception:  # noqa: BLE001 - the first checkpoint will name the limit that raised
            return None
