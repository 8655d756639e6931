"""The wait after a failed summary, stored in the state's metadata so that it holds across runs."""

from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from stepwell.agent.metadata_keys import RESERVED_PREFIX
from stepwell.state import AgentState

WAIT = f"{RESERVED_PREFIX}summary_wait"

_MAX_DOUBLINGS = 4
"""Repeated failures are retried every 16 steps."""


class SummaryWait(Struct, frozen=True, kw_only=True):
    """The number of consecutive failures, and how many steps to wait before the next try.

    >>> failed_twice = SummaryWait().after_failure().after_step().after_failure()
    >>> failed_twice.failures, failed_twice.steps_left
    (2, 4)
    """

    failures: int = 0
    steps_left: int = 0

    @classmethod
    def of(cls, state: AgentState) -> "SummaryWait":
        """Read the wait from a state; an invalid value counts as none."""
        stored: Any = state.metadata.get(WAIT)
        if stored is None:
            return NO_WAIT
        try:
            return convert(stored, cls)
        except ValidationError:
            return NO_WAIT

    def after_failure(self) -> "SummaryWait":
        """Return a wait twice as long as the last, including the failed step."""
        failures = self.failures + 1
        return SummaryWait(failures=failures, steps_left=2 ** min(failures, _MAX_DOUBLINGS))

    def after_step(self) -> "SummaryWait":
        """Return the wait with one step less."""
        return replace(self, steps_left=max(self.steps_left - 1, 0))

    def stored_in(self, state: AgentState) -> AgentState:
        """Return the state with this wait, or without one if nothing failed."""
        if self.failures:
            return state.with_metadata({WAIT: to_builtins(self)})
        kept = {key: value for key, value in state.metadata.items() if key != WAIT}
        return replace(state, metadata=kept)


NO_WAIT = SummaryWait()
