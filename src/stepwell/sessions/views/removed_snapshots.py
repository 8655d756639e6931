"""Executions whose states were deleted by retention: how their rows say so, and what is told to
those who ask for a state. Their messages, decision and output stay.
"""

from datetime import datetime

from msgspec.structs import replace

from stepwell.sessions.errors import NotThereError, SessionError
from stepwell.sessions.records import Execution

STATES_REMOVED = "states_removed"
"""The key in an execution's metadata under which it says when; also the code of the error."""


class StatesRemovedError(NotThereError):
    """The execution is there, its states are not any more."""

    def __init__(self, execution: Execution) -> None:
        SessionError.__init__(
            self,
            f"{states_removed_text(execution)}; its messages, decision and output are still there",
            code=STATES_REMOVED,
        )


def states_removed_text(execution: Execution) -> str:
    """What happened to its states, in words."""
    at = execution.metadata.get(STATES_REMOVED)
    return f"the states of execution {execution.id} were removed by retention at {at}"


def has_no_states_any_more(execution: Execution) -> bool:
    """Whether retention has deleted them."""
    return STATES_REMOVED in execution.metadata


def require_states(execution: Execution) -> None:
    """Raise ``StatesRemovedError`` for one whose states were removed."""
    if has_no_states_any_more(execution):
        raise StatesRemovedError(execution)


def without_states(execution: Execution, at: datetime) -> Execution:
    """The row of one whose states were deleted just now."""
    metadata = {**execution.metadata, STATES_REMOVED: at.isoformat()}
    return replace(execution, last_snapshot_id=None, metadata=metadata)
