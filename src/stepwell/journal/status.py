"""Where an execution stands: one set of facts, in the two lists of words that the wire has.

Rows and the HTTP API say ``pending`` and ``running`` where envelopes say ``idle`` and
``processing``. Both lists are public and fixed, and each door accepts only its own words; what a
word means is said once, in ``Status``.
"""

from enum import StrEnum
from typing import Self

from stepwell.continuation import AgentStatus

_SAME = (("pending", "idle"), ("in_progress", "running", "processing"))
_TERMINAL = frozenset({"completed", "stopped", "failed", "cancelled"})


class Status(StrEnum):
    """What is true of a status, whichever word the wire has for it."""

    @classmethod
    def of(cls, status: "AgentStatus | Status") -> Self:
        """Return this list's word for a status of the other list, or of a state.

        >>> ExecutionStatus.of(AgentStatus.IN_PROGRESS), BroadcastStatus.of(ExecutionStatus.PENDING)
        (<ExecutionStatus.RUNNING: 'running'>, <BroadcastStatus.IDLE: 'idle'>)
        """
        words = next((group for group in _SAME if status.value in group), (status.value,))
        return next(member for member in cls if member.value in words)

    @property
    def is_terminal(self) -> bool:
        """Whether nothing follows; a paused execution goes on.

        >>> ExecutionStatus.PAUSED.is_terminal, BroadcastStatus.FAILED.is_terminal
        (False, True)
        """
        return self.value in _TERMINAL


class ExecutionStatus(Status):
    """Where an execution stands, in rows and in the HTTP API."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BroadcastStatus(Status):
    """Where an execution stands, as user interfaces see it."""

    IDLE = "idle"
    PROCESSING = "processing"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
