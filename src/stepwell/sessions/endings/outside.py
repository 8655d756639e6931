"""Ends that no run decides: on request, set aside, or broken. Each leaves what a run's own end
leaves: a final state that knows every call that began, a decision, one terminal status.

Called within a transaction that holds the locks of the session and the execution.
"""

from typing import Any

from msgspec.structs import replace

from stepwell.journal.status import BroadcastStatus, ExecutionStatus
from stepwell.sessions.endings.close import close_execution, unseen_messages
from stepwell.sessions.endings.cut_off import terminal_status
from stepwell.sessions.endings.end import End, EndDeps, broken_end
from stepwell.sessions.endings.final_state import store_final_state
from stepwell.sessions.narration import Narrator, with_decision
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import PUBLISHED_STATUS, Execution


async def end_execution(
    tx: Transaction, execution: Execution, end: End, deps: EndDeps
) -> Execution:
    """End a locked execution that nobody works on, or whose worker calls this. Return its row."""
    at, is_failure = deps.clock.now(), end.status is not ExecutionStatus.CANCELLED
    final = await store_final_state(tx, execution, end, deps, at)
    aside = {} if end.set_aside is None else {"set_aside": end.set_aside}
    facts: dict[str, Any] = {"stop_reason": str(end.stop_reason), **aside}
    row = replace(
        with_decision(final.row, end.outcome),
        status=end.status,
        error_message=end.reason if is_failure else None,
        cancel_requested=execution.cancel_requested if is_failure else end.reason,
        pending=(),
        updated_at=at,
        completed_at=at,
        metadata={**execution.metadata, **aside},
    )
    note = Narrator(row).end_note(end.status, end.text, at, facts)
    happened = [Occurrence.of_note(*it) for it in (*final.notes, note)]
    if deps.settings.broadcast.auto_status_tracking:
        before = execution.metadata.get(PUBLISHED_STATUS)
        known = BroadcastStatus.IDLE if before is None else BroadcastStatus(before)
        happened[-1] = terminal_status(row, known, at, note)
        row = replace(row, metadata={**row.metadata, PUBLISHED_STATUS: str(end.status)})
    session_id = row.session_id
    session = None if session_id is None else await tx.session(session_id, lock=True)
    await close_execution(
        tx,
        row,
        session,
        happened,
        deps,
        unseen=await unseen_messages(tx, row, final.seen),
    )
    return row


async def mark_failed(tx: Transaction, execution: Execution, error_id: str, deps: EndDeps) -> bool:
    """Mark the execution failed if this attempt still runs it. Return whether it did. Takes the
    locks itself."""
    if execution.session_id is not None:
        # The same order of locks as everywhere: the session first.
        await tx.session(execution.session_id, lock=True)
    row = await tx.execution(execution.id, lock=True)
    if row is None or row.attempt != execution.attempt or row.status is not ExecutionStatus.RUNNING:
        return False
    await end_execution(tx, row, broken_end(error_id), deps)
    return True
