"""Executions whose states retention has deleted: how their rows say so, and the error for a request
of a state. Their messages, decision and output stay.
"""

from datetime import datetime

from msgspec.structs import replace

from stepwell.sessions.errors import NotThereError, SessionError
from stepwell.sessions.records import Execution

STATES_REMOVED = "states_removed"
"""The key in an execution's metadata for the time of the deletion; also the error's code."""


class StatesRemovedError(NotThereError):
    """Raised when an execution exists but its states were deleted."""

    def __init__(self, execution: Execution) -> None:
        SessionError.__init__(
            self,
            f"{states_removed_text(execution)}; its messages, decision and output are still there",
            code=STATES_REMOVED,
        )


def states_removed_text(execution: Execution) -> str:
    """Return what happened to its states, in words."""
    at = execution.metadata.get(STATES_REMOVED)
    return f"the states of execution {execution.id} were removed by retention at {at}"


def has_no_states_any_more(execution: Execution) -> bool:
    """Whether retention has deleted its states."""
    return STATES_REMOVED in execution.metadata


def require_states(execution: Execution) -> None:
    """Raise ``StatesRemovedError`` if its states were deleted."""
    if has_no_states_any_more(execution):
        raise StatesRemovedError(execution)


def without_states(execution: Execution, at: datetime) -> Execution:
    """Return the row of an execution whose states were just deleted."""
    metadata = {**execution.metadata, STATES_REMOVED: at.isoformat()}
    return replace(execution, last_snapshot_id=None, metadata=metadata)
