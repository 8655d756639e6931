"""The words of a decision: votes, stop reasons with their urgency, and the status of a run."""

from enum import StrEnum
from typing import assert_never


class ContinuationDecision(StrEnum):
    """One vote on whether the run goes on."""

    FORBID = "forbid"
    REQUEST = "request"
    ALLOW_STOP = "allow_stop"
    ALLOW = "allow"


class StopReason(StrEnum):
    """Why a run ended, most urgent first; the order decides between several forbids."""

    ERROR = "error"
    USER_REQUESTED = "user_requested"
    STOP_REQUESTED = "stop_requested"
    INPUT_REQUIRED = "input_required"
    GUARD = "guard"
    STEPS_LIMIT = "steps_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    COST_LIMIT = "cost_limit"
    RETRY_LIMIT = "retry_limit"
    FINISH_REASON = "finish_reason"
    COMPLETED = "completed"

    @property
    def urgency(self) -> int:
        """0 is the most urgent."""
        return _URGENCY[self]

    @property
    def is_limit(self) -> bool:
        """Whether a budget of steps, tokens, seconds or cost ran out."""
        return self in _LIMITS

    @property
    def can_be_overruled(self) -> bool:
        """Whether a continue request that names the signal may consume it."""
        return self not in _FINAL


_URGENCY = {reason: place for place, reason in enumerate(StopReason)}
_LIMITS = frozenset(
    {
        StopReason.STEPS_LIMIT,
        StopReason.TOKEN_LIMIT,
        StopReason.TIME_LIMIT,
        StopReason.COST_LIMIT,
    }
)
_FINAL = _LIMITS | {StopReason.ERROR, StopReason.USER_REQUESTED, StopReason.RETRY_LIMIT}


class AgentStatus(StrEnum):
    """Where a run stands."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    STOPPED = "stopped"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @classmethod
    def after(cls, reason: StopReason | None, *, was_cut: bool = False) -> "AgentStatus":
        """The status that a stop reason leads to; None means the run goes on. ``was_cut`` says that
        the finish reason tells of an answer that was cut off.

        >>> AgentStatus.after(StopReason.STEPS_LIMIT)
        <AgentStatus.STOPPED: 'stopped'>
        """
        match reason:
            case None:
                return cls.IN_PROGRESS
            case StopReason.COMPLETED | StopReason.FINISH_REASON:
                return cls.STOPPED if was_cut else cls.COMPLETED
            case StopReason.ERROR | StopReason.RETRY_LIMIT:
                return cls.FAILED
            case StopReason.USER_REQUESTED:
                return cls.CANCELLED
            case StopReason.INPUT_REQUIRED:
                return cls.PAUSED
            case (
                StopReason.STOP_REQUESTED
                | StopReason.GUARD
                | StopReason.STEPS_LIMIT
                | StopReason.TOKEN_LIMIT
                | StopReason.TIME_LIMIT
                | StopReason.COST_LIMIT
            ):
                return cls.STOPPED
            case _:
                assert_never(reason)
