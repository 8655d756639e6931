"""How an execution ends on request: at once where nobody works on it, else its worker is asked.

Called within a transaction that holds the lock of the session, by ``lifecycle``, by ``intake`` for
sessions that a new message interrupts, and by a run that was to pause.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stepwell.continuation import StopReason
from stepwell.sessions.ending import Ended, Means, end_at_once
from stepwell.sessions.ports import Transaction, execution_topic
from stepwell.sessions.records import Execution, ExecutionStatus

NO_REASON = "cancelled on request"


class Ending(Struct, frozen=True, kw_only=True, eq=False):
    """Why executions end, and what ending them takes."""

    reason: str
    means: Means

    @property
    def words(self) -> str:
        """The reason; there is always one."""
        return self.reason or NO_REASON


def cancelled(words: str) -> Ended:
    """The end of an execution that somebody wanted to end."""
    because = "" if words == NO_REASON else f": {words}"
    return Ended(
        status=ExecutionStatus.CANCELLED,
        stop_reason=StopReason.USER_REQUESTED,
        words=words,
        text=f"Execution cancelled{because}",
        source="user",
    )


async def end(transaction: Transaction, execution: Execution, ending: Ending) -> Execution:
    """End a locked execution that is not over: at once, or by asking its worker."""
    if execution.status is ExecutionStatus.RUNNING:
        return await _ask_worker(transaction, execution, ending)
    return await end_at_once(transaction, execution, cancelled(ending.words), ending.means)


async def end_all(
    transaction: Transaction, unfinished: Sequence[Execution], ending: Ending
) -> None:
    """End all of a locked session, the newest first, so that none becomes the next in between."""
    for waiting in reversed(unfinished):
        execution = await transaction.execution(waiting.id, lock=True)
        if execution is not None and not execution.status.is_over:
            await end(transaction, execution, ending)


async def _ask_worker(transaction: Transaction, execution: Execution, ending: Ending) -> Execution:
    transaction.tell(execution_topic(execution.id))
    if execution.cancel_requested is not None:
        return execution
    at = ending.means.clock.now()
    asked = replace(execution, cancel_requested=ending.words, updated_at=at)
    await transaction.save_execution(asked)
    return asked
