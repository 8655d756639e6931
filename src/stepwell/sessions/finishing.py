"""The end of an execution, as part of the transaction that ends it: its row, what people are told,
the subagents it leaves, and whose turn it is in the session.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stepwell.sessions.log import Told, append
from stepwell.sessions.ports import Jobs, NewEvent, Transaction
from stepwell.sessions.records import Execution, ExecutionStatus, Session, SessionMessage

MOST_SUBAGENTS = 10_000
"""More than any execution has."""


async def finish(
    tx: Transaction,
    jobs: Jobs,
    execution: Execution,
    messages: Sequence[SessionMessage],
    events: Sequence[NewEvent],
) -> None:
    """Save an execution that has its final status, tell it, and enqueue the session's next one.

    Raises ``LostLeaseError`` if another worker has it.
    """
    session_id = execution.session_id
    session = None if session_id is None else await tx.session(session_id, lock=True)
    await tx.save_execution(replace(execution, worker_id=None, lease_until=None))
    await end_subagents(tx, execution)
    if session is None:
        return
    await append(tx, session, Told(messages, events))
    waiting = await tx.unfinished(session.id)
    await tx.save_session(
        replace(
            session,
            last_execution_id=await _newest(tx, session, waiting[-1] if waiting else execution),
            last_snapshot_id=execution.last_snapshot_id or session.last_snapshot_id,
            updated_at=max(session.updated_at, execution.updated_at),
        )
    )
    if waiting and waiting[0].status is ExecutionStatus.PENDING:
        await jobs.enqueue(tx, waiting[0].id)


async def _newest(tx: Transaction, session: Session, execution: Execution) -> str:
    """The session's newest execution: this one, or the one that it knows as its last. That may
    have been sent while this one ran, and may even be over already, if it was cancelled."""
    known = None
    if session.last_execution_id not in (None, execution.id):
        known = await tx.execution(session.last_execution_id or "")
    if known is None:
        return execution.id
    return max((execution, known), key=lambda it: (it.created_at, it.id)).id


async def end_subagents(tx: Transaction, execution: Execution, *, but_paused: bool = False) -> None:
    """Those that never told how they ended: their parent is over, or its worker died."""
    for child in await tx.executions(parent_execution_id=execution.id, limit=MOST_SUBAGENTS):
        is_left = but_paused and child.status is ExecutionStatus.PAUSED
        if child.status.is_over or is_left:
            continue
        await end_subagents(tx, child, but_paused=but_paused)
        why = "its worker died" if but_paused else "the execution that ran it ended"
        await tx.save_execution(
            replace(
                child,
                status=ExecutionStatus.CANCELLED,
                error_message=f"It was cut off: {why}.",
                completed_at=execution.updated_at,
                updated_at=execution.updated_at,
            )
        )
