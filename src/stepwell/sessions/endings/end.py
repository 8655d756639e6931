"""As what an execution ends, and why: values only."""

from msgspec import Struct

from stepwell.clock import Clock
from stepwell.continuation import ContinuationOutcome, StopReason, StopSignal, resolve
from stepwell.errors import SerializationError
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.ports import Jobs
from stepwell.sessions.records import Execution
from stepwell.sessions.settings import SessionSettings

NO_REASON = "cancelled on request"


class EndDeps(Struct, frozen=True, kw_only=True, eq=False):
    """What ending an execution takes."""

    jobs: Jobs
    clock: Clock
    settings: SessionSettings


class End(Struct, frozen=True, kw_only=True):
    """An end that no run decided."""

    status: ExecutionStatus
    stop_reason: StopReason
    reason: str
    """There is always one."""
    text: str
    """What people read."""
    set_aside: str | None = None
    """Why it was set aside, for its row: ``crashes``, ``definition_changed`` or ``state``."""
    is_resumable: bool = False
    """A person may resume it, so its state stays in progress."""
    source: str = "AppServer"

    @property
    def outcome(self) -> ContinuationOutcome:
        """The decision as a run would have made it."""
        signal = StopSignal(reason=self.stop_reason, message=self.reason, source=self.source)
        return resolve([signal.as_evaluation()])


def cancelled_end(reason: str) -> End:
    """The end of an execution that somebody wanted to end."""
    because = "" if reason == NO_REASON else f": {reason}"
    return End(
        status=ExecutionStatus.CANCELLED,
        stop_reason=StopReason.USER_REQUESTED,
        reason=reason,
        text=f"Execution cancelled{because}",
        source="user",
    )


def broken_end(error_id: str) -> End:
    """The end of an execution after an unexpected error. People get an id under which
    the log has the details, and nothing of the error itself."""
    text = f"Something went wrong in the server. Its log tells more under error id {error_id}."
    return End(status=ExecutionStatus.FAILED, stop_reason=StopReason.ERROR, reason=text, text=text)


def set_aside_by_crashes(execution: Execution, running: tuple[str, ...]) -> End:
    """The end of an execution whose worker died too often in one step; ``running`` are the tools
    whose calls it had begun."""
    where = f"step {execution.step_count + 1}"
    if running:
        where += f" while running {', '.join(running)}"
    text = (
        f"Set aside: the worker died {execution.crashes} times in {where}. Find out what kills "
        f"it, then take it up again with POST /agent/executions/{execution.id}/resume."
    )
    return End(
        status=ExecutionStatus.FAILED,
        stop_reason=StopReason.ERROR,
        reason=text,
        text=text,
        set_aside="crashes",
        is_resumable=True,
    )


def set_aside_by_change(execution: Execution) -> End:
    """The end of an execution whose agent has changed since it began, where such ones stop."""
    text = (
        f"Stopped before step {execution.step_count + 1}: the definition of agent "
        f"{execution.agent_type!r} changed since it began. To go on with the new one: POST "
        f"/agent/executions/{execution.id}/resume with accept_change."
    )
    return End(
        status=ExecutionStatus.STOPPED,
        stop_reason=StopReason.STOP_REQUESTED,
        reason=text,
        text=text,
        set_aside="definition_changed",
        is_resumable=True,
    )


def set_aside_by_state(error: SerializationError, what: str) -> End:
    """The end of an execution whose state can't be stored, or not be read any more."""
    text = f"The state of the execution can't be {what}: {error}"
    return End(
        status=ExecutionStatus.FAILED,
        stop_reason=StopReason.ERROR,
        reason=text,
        text=text,
        set_aside="state",
    )
