"""How an execution ends on request: at once where nobody works on it, else its worker is asked.

Called within a transaction that holds the lock of the session, by ``lifecycle`` and by ``intake``
for sessions that a new message interrupts.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from stepwell.broadcasting.envelope import BroadcastStatus, EnvelopeType, StatusPayload
from stepwell.clock import Clock
from stepwell.continuation import ContinuationOutcome, StopReason, StopSignal, resolve
from stepwell.sessions.finishing import finish
from stepwell.sessions.ids import derived_id
from stepwell.sessions.log import message_event
from stepwell.sessions.ports import Jobs, NewEvent, Transaction, execution_topic
from stepwell.sessions.records import Execution, ExecutionStatus, Session
from stepwell.sessions.running import TOLD_STATUS
from stepwell.sessions.snapshotting import SnapshotChain
from stepwell.sessions.telling import Narrator
from stepwell.state import AgentState

NO_REASON = "cancelled on request"


class Ending(Struct, frozen=True, kw_only=True, eq=False):
    """Why executions end, and what ending them takes."""

    reason: str
    jobs: Jobs
    clock: Clock
    growth: float

    @property
    def words(self) -> str:
        """The reason; there is always one."""
        return self.reason or NO_REASON

    def outcome(self) -> ContinuationOutcome:
        """The decision as a run would have made it."""
        return resolve([StopSignal.user_requested(self.words).as_evaluation()])


async def end(
    transaction: Transaction, session: Session | None, execution: Execution, ending: Ending
) -> Execution:
    """End a locked execution that is not over: at once, or by asking its worker."""
    if execution.status is ExecutionStatus.RUNNING:
        return await _ask_worker(transaction, execution, ending)
    at = ending.clock.now()
    ended = _ended(execution, ending, at)
    agent_id = None
    if execution.last_snapshot_id is not None:
        ended, agent_id = await _final_snapshot(transaction, ended, ending, at)
    if session is None:
        await finish(transaction, ending.jobs, ended, (), ())
        return ended
    # Of an execution that never ran it is the one that a run would have given it.
    agent_id = agent_id or derived_id(session.id, "agent")
    because = f": {ending.reason}" if ending.reason else ""
    message, kind = Narrator(ended).ended_with(
        ExecutionStatus.CANCELLED,
        f"Execution cancelled{because}",
        at,
        {"stop_reason": StopReason.USER_REQUESTED.value},
    )
    events = [message_event(message, kind), _status_event(execution, agent_id, ending, at)]
    await finish(transaction, ending.jobs, ended, [message], events)
    return ended


async def end_all(
    transaction: Transaction, session: Session, unfinished: Sequence[Execution], ending: Ending
) -> None:
    """End all of a locked session, the newest first, so that none becomes the next in between."""
    for waiting in reversed(unfinished):
        execution = await transaction.execution(waiting.id, lock=True)
        if execution is not None and not execution.status.is_over:
            await end(transaction, session, execution, ending)


def ended_state(state: AgentState, outcome: ContinuationOutcome, clock: Clock) -> AgentState:
    """A state that a run was going to take up, ended; what it waited for is not answered."""
    return state.with_outcome(outcome, clock).with_run_left()


async def _ask_worker(transaction: Transaction, execution: Execution, ending: Ending) -> Execution:
    transaction.tell(execution_topic(execution.id))
    if execution.cancel_requested is not None:
        return execution
    asked = replace(execution, cancel_requested=ending.words, updated_at=ending.clock.now())
    await transaction.save_execution(asked)
    return asked


def _ended(execution: Execution, ending: Ending, at: datetime) -> Execution:
    return replace(
        execution,
        status=ExecutionStatus.CANCELLED,
        stop_reason=StopReason.USER_REQUESTED.value,
        decision=ending.outcome().to_dict(),
        pending=(),
        cancel_requested=ending.words,
        updated_at=at,
        completed_at=at,
    )


async def _final_snapshot(
    transaction: Transaction, ended: Execution, ending: Ending, at: datetime
) -> tuple[Execution, str]:
    """The execution with its final snapshot, and whose state it is."""
    chain = SnapshotChain(ending.growth)
    before = await chain.load(transaction, ended.last_snapshot_id or "")
    state = ended_state(before, ending.outcome(), ending.clock)
    snapshot_id = derived_id(ended.id, "cancelled", "snapshot")
    snapshot = chain.next(ended, state, id=snapshot_id, at=at, is_final=True)
    await transaction.add_snapshot(snapshot)
    return replace(ended, last_snapshot_id=snapshot.id), state.agent_id


def _status_event(execution: Execution, agent_id: str, ending: Ending, at: datetime) -> NewEvent:
    """The one terminal status that live clients wait for."""
    told: Any = execution.metadata.get(TOLD_STATUS)
    payload = StatusPayload(
        agent_id=agent_id,
        status=BroadcastStatus.CANCELLED,
        previous_status=BroadcastStatus.IDLE if told is None else BroadcastStatus(told),
        step_count=execution.step_count,
        stop_reason=StopReason.USER_REQUESTED,
        reason=ending.words,
    )
    data: dict[str, Any] = to_builtins(payload)
    return NewEvent(
        id=derived_id(execution.id, "status", "cancelled"),
        type=EnvelopeType.STATUS.value,
        payload=data,
        created_at=at,
        execution_id=execution.id,
    )
