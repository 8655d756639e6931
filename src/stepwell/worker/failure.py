"""How an execution ends that broke in a way nobody foresaw: as failed, with a text for people."""

from stepwell.continuation import StopReason
from stepwell.sessions.ending import Ended, Means, end_at_once
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, ExecutionStatus


async def mark_failed(tx: Transaction, means: Means, execution: Execution, error_id: str) -> bool:
    """Mark the execution failed if this attempt still owns it. Return whether it did.

    The text for people has an id under which the log has the details, and nothing of the error.
    """
    if execution.session_id is not None:
        # The same order of locks as everywhere: the session first.
        await tx.session(execution.session_id, lock=True)
    row = await tx.execution(execution.id, lock=True)
    if row is None or row.attempt != execution.attempt or row.status is not ExecutionStatus.RUNNING:
        return False
    text = f"Something went wrong in the server. Its log tells more under error id {error_id}."
    ended = Ended(
        status=ExecutionStatus.FAILED, stop_reason=StopReason.ERROR, words=text, text=text
    )
    await end_at_once(tx, row, ended, means)
    return True
