"""What every end of an execution does, as part of the transaction that ends it: its row and its
ledger, what people are told, the subagents and unseen messages it leaves, and whose turn it is.

A run that decided its end comes here itself; all other ends come through ``ending``.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec import to_builtins
from msgspec.structs import replace

from stepwell.continuation import StopReason, StopSignal, resolve
from stepwell.journal.envelope import BroadcastStatus, EnvelopeType, StatusPayload
from stepwell.sessions.ids import derived_id
from stepwell.sessions.log import JournalBatch, append, message_event, status_event_id
from stepwell.sessions.ports import Jobs, NewEvent, Transaction
from stepwell.sessions.queueing import later_than, queued_message
from stepwell.sessions.records import (
    EventType,
    Execution,
    ExecutionStatus,
    MessageRole,
    Session,
    SessionMessage,
    SessionStatus,
)
from stepwell.sessions.settled import first_seq_in
from stepwell.sessions.telling import AGENT_ID, Narrator, decided

PASSED_ON = "passed_on"
"""The key in an execution's metadata for messages to it that another one answers."""

MOST_SUBAGENTS = 10_000
"""More than any execution has."""


async def finish(
    tx: Transaction,
    jobs: Jobs,
    execution: Execution,
    session: Session | None,
    told: JournalBatch,
    *,
    unseen: Sequence[SessionMessage],
    tells_statuses: bool = True,
    by_its_run: bool = True,
) -> None:
    """Save an execution that has its final status, tell it, and enqueue the next one of its locked
    session.

    ``unseen`` are messages to it that its state does not know. ``by_its_run`` says that a run ends
    it, which told how its subagents ended. Raises ``LostLeaseError`` if another worker has it.
    """
    await tx.save_execution(replace(execution, worker_id=None))
    await tx.settle(execution.id, execution.step_count + 1)
    cut_off = await end_subagents(tx, execution, told_ends=by_its_run)
    if session is None:
        return
    children = cut_off if tells_statuses else []
    more = await _passed_on(tx, session, execution, [message.id for message in unseen])
    # The last event is the status after which clients expect nothing of this execution.
    events = [*told.events[:-1], *children, *told.events[-1:], *more.events]
    await append(tx, session, JournalBatch([*told.messages, *more.messages], events))
    waiting = await point_to_newest(tx, session, execution)
    if waiting and waiting[0].status is ExecutionStatus.PENDING:
        await jobs.enqueue(tx, waiting[0].id)


async def point_to_newest(
    tx: Transaction, session: Session, execution: Execution
) -> Sequence[Execution]:
    """Save in a locked session which execution is its newest, and this one's snapshot as where the
    next one goes on from. Returns those that are not over."""
    waiting = await tx.unfinished(session.id)
    newest = waiting[-1] if waiting else execution
    known = None
    # The one that it knows was perhaps sent while this one ran, and is perhaps over already.
    if session.last_execution_id not in (None, newest.id):
        known = await tx.execution(session.last_execution_id or "")
    if known is not None:
        newest = max((newest, known), key=lambda it: (it.created_at, it.id))
    await tx.save_session(
        replace(
            session,
            last_execution_id=newest.id,
            last_snapshot_id=execution.last_snapshot_id or session.last_snapshot_id,
            updated_at=max(session.updated_at, execution.updated_at),
        )
    )
    return waiting


async def end_subagents(
    tx: Transaction, execution: Execution, *, but_paused: bool = False, told_ends: bool = False
) -> list[NewEvent]:
    """End those that never told how they ended: their parent is over, or its worker died. Returns
    the last statuses that clients may not have heard; unless it ``told_ends``, a worker may have
    died between a subagent's end and telling it."""
    told: list[NewEvent] = []
    why = "its worker died" if but_paused else "the execution that ran it ended"
    signal = StopSignal(reason=StopReason.USER_REQUESTED, message=f"It was cut off: {why}.")
    for child in await tx.executions(parent_execution_id=execution.id, limit=MOST_SUBAGENTS):
        if but_paused and child.status is ExecutionStatus.PAUSED:
            continue
        if child.status.is_over:
            if not told_ends:
                told.append(status_event(child, BroadcastStatus.PROCESSING, child.updated_at))
            continue
        told += await end_subagents(tx, child, but_paused=but_paused, told_ends=told_ends)
        is_paused = child.status is ExecutionStatus.PAUSED
        ended = replace(
            decided(child, resolve([signal.as_evaluation()])),
            status=ExecutionStatus.CANCELLED,
            error_message=signal.message,
            pending=(),
            completed_at=execution.updated_at,
            updated_at=execution.updated_at,
        )
        await tx.save_execution(ended)
        before = BroadcastStatus.PAUSED if is_paused else BroadcastStatus.PROCESSING
        told.append(status_event(ended, before, execution.updated_at))
    return told


def status_event(execution: Execution, before: BroadcastStatus, at: datetime) -> NewEvent:
    """The one terminal status that live clients wait for, of a row that is over."""
    status, reason = BroadcastStatus(execution.status.value), execution.stop_reason
    is_child = execution.parent_execution_id is not None
    agent_id = derived_id(execution.session_id or execution.id, "agent")
    payload = StatusPayload(
        agent_id=execution.metadata.get(AGENT_ID, execution.id) if is_child else agent_id,
        agent_name=execution.agent_type if is_child else None,
        parent_execution_id=execution.parent_execution_id,
        status=status,
        previous_status=before,
        step_count=execution.step_count,
        stop_reason=None if reason is None else StopReason(reason),
        reason=execution.error_message or execution.cancel_requested,
        error_message=execution.error_message if status is BroadcastStatus.FAILED else None,
    )
    return NewEvent(
        id=status_event_id(execution.id, status, execution.attempt),
        type=EnvelopeType.STATUS.value,
        payload=to_builtins(payload),
        created_at=at,
        execution_id=execution.id,
    )


async def unseen_messages(
    tx: Transaction, execution: Execution, seen: Collection[str]
) -> list[SessionMessage]:
    """Messages to an execution that came too late for its state."""
    known = {*seen, *execution.metadata.get(PASSED_ON, ())}
    sent = await tx.steering_messages(execution.id)
    return [message for message in sent if message.id not in known]


async def _passed_on(
    tx: Transaction, session: Session, execution: Execution, unseen: Sequence[str]
) -> JournalBatch:
    """Messages that came too late to be seen get an execution of their own, and in a session that
    was closed meanwhile a note that nobody answers them."""
    if not unseen:
        return JournalBatch()
    at = later_than(session, execution.updated_at)
    if session.status is SessionStatus.CLOSED:
        kind = EventType.MESSAGE_SENT
        note, _ = Narrator(execution).note(
            kind,
            f"{len(unseen)} of your messages {'was' if len(unseen) == 1 else 'were'} not answered: "
            "the session was closed.",
            at,
            parts=("unseen", *unseen),
            role=MessageRole.NOTIFICATION,
            metadata={"not_answered": unseen},
        )
        return JournalBatch([note], [message_event(note, kind)])
    own = Execution(
        id=derived_id(execution.id, "unseen", *unseen),
        tenant_id=session.tenant_id,
        session_id=session.id,
        user_id=execution.user_id or session.user_id,
        agent_type=session.agent_type,
        definition_hash=execution.definition_hash,
        agent_config=execution.agent_config,
        input={"message_ids": unseen},
        metadata=first_seq_in(session),
        created_at=at,
        updated_at=at,
    )
    await tx.add_execution(own)
    # It may be resumed and end again: a message is passed on once.
    passed_on = [*execution.metadata.get(PASSED_ON, ()), *unseen]
    metadata = {**execution.metadata, PASSED_ON: passed_on}
    await tx.save_execution(replace(execution, metadata=metadata, worker_id=None))
    queued = queued_message(own, session, at)
    return JournalBatch([queued], [message_event(queued, EventType.EXECUTION_QUEUED)])
