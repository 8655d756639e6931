"""What every end of an execution does, as part of the transaction that ends it: its row and its
intent, the message for people, the subagents and unseen messages it leaves, and whose turn it is.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.endings.cut_off import cut_off_subagents
from stepwell.sessions.endings.end import EndDeps
from stepwell.sessions.ids import derived_id
from stepwell.sessions.intake.queue_entry import later_than, queued_message
from stepwell.sessions.narration import Narrator
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import (
    PASSED_ON,
    EventType,
    Execution,
    MessageRole,
    Session,
    SessionMessage,
    SessionStatus,
)
from stepwell.sessions.settled_seq import first_seq_in


async def close_execution(
    tx: Transaction,
    execution: Execution,
    session: Session | None,
    happened: Sequence[Occurrence],
    deps: EndDeps,
    *,
    unseen: Sequence[SessionMessage],
) -> None:
    """Save an execution that has its final status, append what happened, and enqueue the next one
    of its locked session.

    ``unseen`` are messages to it that its state does not have. Raises ``LostLeaseError`` if another
    worker has it.
    """
    await tx.save_execution(replace(execution, worker_id=None))
    await tx.delete_intent(execution.id)
    cut_off = await cut_off_subagents(tx, execution)
    if session is None:
        return
    children = cut_off if deps.settings.broadcast.auto_status_tracking else []
    more = await _pass_on(tx, session, execution, [message.id for message in unseen])
    # The last one is the status after which clients expect nothing of this execution.
    await tx.append(session, [*happened[:-1], *children, *happened[-1:], *more])
    waiting = await point_to_newest(tx, session, execution)
    if waiting and waiting[0].status is ExecutionStatus.PENDING:
        await deps.jobs.enqueue(tx, waiting[0].id)


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


async def unseen_messages(
    tx: Transaction, execution: Execution, seen: Collection[str]
) -> list[SessionMessage]:
    """Messages to an execution that came too late for its state."""
    known = {*seen, *execution.metadata.get(PASSED_ON, ())}
    sent = await tx.steering_messages(execution.id)
    return [message for message in sent if message.id not in known]


async def _pass_on(
    tx: Transaction, session: Session, execution: Execution, unseen: Sequence[str]
) -> list[Occurrence]:
    """Messages that came too late to be seen get an execution of their own, and in a session that
    was closed meanwhile a note that nobody answers them."""
    if not unseen:
        return []
    at = later_than(session, execution.updated_at)
    if session.status is SessionStatus.CLOSED:
        note = Narrator(execution).note(
            EventType.MESSAGE_SENT,
            f"{len(unseen)} of your messages {'was' if len(unseen) == 1 else 'were'} not answered: "
            "the session was closed.",
            at,
            parts=("unseen", *unseen),
            role=MessageRole.NOTIFICATION,
            metadata={"not_answered": unseen},
        )
        return [Occurrence.of_note(*note)]
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
    return [Occurrence.of_note(queued, EventType.EXECUTION_QUEUED)]
