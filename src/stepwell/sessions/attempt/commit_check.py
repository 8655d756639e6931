"""Checks whether an earlier try of a transaction was committed, although its commit seemed to fail.
Only reads."""

from collections.abc import Sequence

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, JournalHead, Session


async def was_committed(
    tx: Transaction, execution: Execution, mark: str | None, *, lets_go: bool
) -> bool:
    """Whether the row has the snapshot ``mark``, or does not run any longer although this attempt
    is the newest and the transaction ``lets_go`` of it."""
    row = await tx.execution(execution.id, lock=True)
    if mark is None or row is None or row.attempt != execution.attempt:
        return False
    has_let_go = lets_go and row.status is not ExecutionStatus.RUNNING
    return has_let_go or row.last_snapshot_id == mark


async def is_stored(
    tx: Transaction,
    session: Session | JournalHead | None,
    seq: int | None,
    happened: Sequence[Occurrence],
) -> bool:
    """Whether the entry of that number is one of these occurrences."""
    if session is None or seq is None:
        return False
    found = await tx.entries_after(session.id, seq - 1, limit=1)
    messages = {it.note.message.id for it in happened if it.note is not None}
    others = {(it.type, it.execution_id, it.at) for it in happened}
    return any(
        it.message_id in messages or (it.type, it.execution_id, it.created_at) in others
        for it in found
    )
