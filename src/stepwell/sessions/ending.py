"""Ends that no run brings about: on request, set aside, or broken. Each leaves what a run's own end
leaves: a final state that knows every call that began, a decision, one terminal status.

Called within a transaction that holds the locks of the session and the execution.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.continuation import (
    ContinuationOutcome,
    ContinueRequest,
    StopReason,
    StopSignal,
    resolve,
)
from stepwell.errors import SerializationError
from stepwell.journal.envelope import BroadcastStatus
from stepwell.sessions.errors import NotThereError
from stepwell.sessions.finishing import finish, status_event, unseen_messages
from stepwell.sessions.ids import derived_id
from stepwell.sessions.log import JournalBatch, Note, message_event
from stepwell.sessions.ports import Jobs, Transaction
from stepwell.sessions.records import Execution, ExecutionStatus
from stepwell.sessions.running import TOLD_STATUS
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.snapshotting import SnapshotChain
from stepwell.sessions.takeovers import stopped_attempts
from stepwell.sessions.telling import Narrator, counted, decided
from stepwell.sessions.unstored import with_unstored_step
from stepwell.state import AgentState, ToolOutcome

GOES_ON_LATER = ContinueRequest(source="AppServer", message="a person may take it up again")


class Means(Struct, frozen=True, kw_only=True, eq=False):
    """What ending an execution takes."""

    jobs: Jobs
    clock: Clock
    settings: SessionSettings


class Ended(Struct, frozen=True, kw_only=True):
    """As what an execution ends, and why."""

    status: ExecutionStatus
    stop_reason: StopReason
    words: str
    """The reason; there is always one."""
    text: str
    """What people read."""
    set_aside: str | None = None
    is_resumable: bool = False
    """A person may take it up again, so its state stays in progress."""
    source: str = "AppServer"

    @property
    def outcome(self) -> ContinuationOutcome:
        """The decision as a run would have made it."""
        signal = StopSignal(reason=self.stop_reason, message=self.words, source=self.source)
        return resolve([signal.as_evaluation()])


async def end_at_once(
    tx: Transaction, execution: Execution, ended: Ended, means: Means
) -> Execution:
    """End a locked execution that nobody works on, or whose worker calls this; the row it left."""
    at, is_failure = means.clock.now(), ended.status is not ExecutionStatus.CANCELLED
    final = await _with_final_state(tx, execution, ended, means, at)
    aside = {} if ended.set_aside is None else {"set_aside": ended.set_aside}
    told: dict[str, Any] = {"stop_reason": str(ended.stop_reason), **aside}
    row = replace(
        decided(final.row, ended.outcome),
        status=ended.status,
        error_message=ended.words if is_failure else None,
        cancel_requested=execution.cancel_requested if is_failure else ended.words,
        pending=(),
        updated_at=at,
        completed_at=at,
        metadata={**execution.metadata, **aside},
    )
    said = [*final.said, Narrator(row).ended_with(ended.status, ended.text, at, told)]
    events = [message_event(message, kind) for message, kind in said]
    before = execution.metadata.get(TOLD_STATUS)
    tells_statuses = means.settings.broadcast.auto_status_tracking
    if tells_statuses:
        known = BroadcastStatus.IDLE if before is None else BroadcastStatus(before)
        events.append(status_event(row, known, at))
        row = replace(row, metadata={**row.metadata, TOLD_STATUS: str(ended.status)})
    session_id = row.session_id
    session = None if session_id is None else await tx.session(session_id, lock=True)
    await finish(
        tx,
        means.jobs,
        row,
        session,
        JournalBatch([message for message, _ in said], events),
        unseen=await unseen_messages(tx, row, final.seen),
        tells_statuses=tells_statuses,
        by_its_run=False,
    )
    return row


def ended_state(state: AgentState, outcome: ContinuationOutcome, clock: Clock) -> AgentState:
    """A state that a run was going to take up, ended; what it waited for is not answered."""
    return state.with_outcome(outcome, clock).with_run_left()


class _Final(Struct, frozen=True):
    row: Execution
    seen: frozenset[str] = frozenset()
    said: tuple[Note, ...] = ()


async def _with_final_state(
    tx: Transaction, execution: Execution, ended: Ended, means: Means, at: datetime
) -> _Final:
    """The row with its final snapshot; without one if it never began, or can't be read."""
    if execution.last_snapshot_id is None:
        return _Final(execution)
    chain = SnapshotChain(means.settings.snapshot_growth)
    outcome = resolve([GOES_ON_LATER.as_evaluation()]) if ended.is_resumable else ended.outcome
    try:
        before = await chain.load(tx, execution.last_snapshot_id)
        ledger = await tx.ledger(execution.id, before.step_number)
        state = with_unstored_step(before, ledger, outcome, at, stopped=stopped_attempts(execution))
        row = execution if state is before else counted(execution, state)
        said = () if state is before else unknown_outcomes(row, state)
        seen = frozenset(message.id for message in state.messages if message.is_user())
        if not ended.is_resumable:
            state = ended_state(state, outcome, means.clock)
        if state is before:
            return _Final(row, seen)
        id = derived_id(execution.id, "ended", execution.attempt, ended.status, "snapshot")
        snapshot = chain.next(execution, state, id=id, at=at, is_final=True)
    except (SerializationError, NotThereError):
        return _Final(execution)
    await tx.add_snapshot(snapshot)
    return _Final(replace(row, last_snapshot_id=snapshot.id), seen, said)


def unknown_outcomes(row: Execution, state: AgentState) -> tuple[Note, ...]:
    """What people are told of the calls in the newest step of which nobody knows."""
    narrator, step = Narrator(row, state.step_count), state.current_step
    executions = () if step is None else step.tool_executions
    return tuple(narrator.came_to(it) for it in executions if it.outcome is ToolOutcome.UNKNOWN)
