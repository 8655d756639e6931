"""The status of an execution: one set of facts, for the two vocabularies of the wire.

Rows and the HTTP API say ``pending`` and ``running`` where envelopes say ``idle`` and
``processing``. Both vocabularies are public and fixed, and each accepts only its own words;
``Status`` has the facts once.
"""

from enum import StrEnum
from typing import Self

from stepwell.continuation import AgentStatus

_SAME = (("pending", "idle"), ("in_progress", "running", "processing"))
_TERMINAL = frozenset({"completed", "stopped", "failed", "cancelled"})


class Status(StrEnum):
    """The facts of a status, whichever word the wire has for it."""

    @classmethod
    def of(cls, status: "AgentStatus | Status") -> Self:
        """Return the status of this vocabulary for one of the other, or of a state.

        >>> ExecutionStatus.of(AgentStatus.IN_PROGRESS), BroadcastStatus.of(ExecutionStatus.PENDING)
        (<ExecutionStatus.RUNNING: 'running'>, <BroadcastStatus.IDLE: 'idle'>)
        """
        words = next((group for group in _SAME if status.value in group), (status.value,))
        return next(member for member in cls if member.value in words)

    @property
    def is_terminal(self) -> bool:
        """Whether the execution is over; a paused one is not.

        >>> ExecutionStatus.PAUSED.is_terminal, BroadcastStatus.FAILED.is_terminal
        (False, True)
        """
        return self.value in _TERMINAL


class ExecutionStatus(Status):
    """The status of an execution in rows and in the HTTP API."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BroadcastStatus(Status):
    """The status of an execution in envelopes."""

    IDLE = "idle"
    PROCESSING = "processing"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
