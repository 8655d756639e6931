"""Ends on request: at once where nobody works on the execution, else its worker is asked.

Called within a transaction that holds the lock of the session: by ``lifecycle``, by
``session_change`` for sessions that are closed, and by ``admission`` for sessions that a new
message interrupts.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.endings.end import NO_REASON, EndDeps, cancelled_end
from stepwell.sessions.endings.outside import end_execution
from stepwell.sessions.ports import Transaction, execution_topic
from stepwell.sessions.records import Execution


class EndRequest(Struct, frozen=True, kw_only=True, eq=False):
    """Why somebody wants executions to end, and what ending them takes."""

    reason: str
    deps: EndDeps

    @property
    def words(self) -> str:
        """The reason; there is always one."""
        return self.reason or NO_REASON


async def request_end(tx: Transaction, execution: Execution, request: EndRequest) -> Execution:
    """End a locked execution that is not over: at once, or by asking its worker."""
    if execution.status is ExecutionStatus.RUNNING:
        return await _ask_worker(tx, execution, request)
    return await end_execution(tx, execution, cancelled_end(request.words), request.deps)


async def request_ends(
    tx: Transaction, unfinished: Sequence[Execution], request: EndRequest
) -> None:
    """End all of a locked session, the newest first, so that none becomes the next in between."""
    for waiting in reversed(unfinished):
        execution = await tx.execution(waiting.id, lock=True)
        if execution is not None and not execution.status.is_terminal:
            await request_end(tx, execution, request)


async def _ask_worker(tx: Transaction, execution: Execution, request: EndRequest) -> Execution:
    tx.tell(execution_topic(execution.id))
    if execution.cancel_requested is not None:
        return execution
    at = request.deps.clock.now()
    asked = replace(execution, cancel_requested=request.words, updated_at=at)
    await tx.save_execution(asked)
    return asked
