"""Resumes a paused or set-aside execution with a new state, status and job.

The state is loaded and changed before the transaction; in it, under the lock, the execution must
still be as it was read. Called by ``lifecycle``.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import ConflictError, NotThereError
from stepwell.sessions.ids import derived_id
from stepwell.sessions.intake.admission import IntakeDeps
from stepwell.sessions.intake.queue_entry import later_than, queued_message
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import EventType, Execution, Session, SessionStatus
from stepwell.sessions.snapshot_chain import SnapshotChain
from stepwell.sessions.views.removed_snapshots import has_no_states_any_more
from stepwell.state import AgentState


class ExecutionChangedError(Exception):
    """Raised when the execution changed since it was read; nothing was written."""


class ResumedExecution(Struct, frozen=True, kw_only=True, eq=False):
    """A resumed execution: its row, its state if that changed, and the text for its session."""

    execution: Execution
    state: AgentState | None
    text: str


Decide = Callable[[Execution, AgentState | None], ResumedExecution]
"""Decides how an execution with that state is resumed, or raises."""


async def find_execution(transaction: Transaction, execution_id: str) -> Execution:
    """Return the execution. Raises ``NotThereError``."""
    execution = await transaction.execution(execution_id)
    if execution is None:
        raise NotThereError("execution", execution_id)
    return execution


async def lock_execution(
    transaction: Transaction, execution_id: str
) -> tuple[Session | None, Execution]:
    """Lock the session and the execution, in the order that every transaction uses."""
    known = await find_execution(transaction, execution_id)
    session = None
    if known.session_id is not None:
        session = await transaction.session(known.session_id, lock=True)
    execution = await transaction.execution(execution_id, lock=True)
    if execution is None:
        raise NotThereError("execution", execution_id)
    return session, execution


class ResumeRequest:
    """One request to resume an execution; its ids stay the same over all tries."""

    def __init__(self, deps: IntakeDeps, store: Store, execution_id: str, request_id: str) -> None:
        self._deps = deps
        self._store = store
        self._execution_id = execution_id
        self._snapshot_id = derived_id(execution_id, "wish", request_id)
        self._request_id = request_id

    async def work(
        self, read: Execution, decide: Decide
    ) -> Callable[[Transaction], Awaitable[Execution]]:
        """Return the work of the transaction, for the execution as it was read."""
        chain, state = SnapshotChain(self._deps.settings.snapshot_growth), None
        if (last := read.last_snapshot_id) is not None:
            state = await self._store.read(lambda transaction: chain.load(transaction, last))
        resumed = decide(read, state)

        async def write(transaction: Transaction) -> Execution:
            session, now = await lock_execution(transaction, self._execution_id)
            if now.metadata.get("wish") == self._request_id:
                return now
            if _fence(now) != _fence(read) or not await chain.has_its_place(transaction):
                raise ExecutionChangedError
            if session is not None and read.status.is_terminal:
                await _check_turn(transaction, session, read)
            return await self._write(transaction, session, resumed, chain)

        return write

    async def _write(
        self,
        transaction: Transaction,
        session: Session | None,
        resumed: ResumedExecution,
        chain: SnapshotChain,
    ) -> Execution:
        now = self._deps.clock.now()
        metadata = {**resumed.execution.metadata, "wish": self._request_id}
        execution = replace(resumed.execution, updated_at=now, metadata=metadata)
        if (state := resumed.state) is not None:
            snapshot_id = self._snapshot_id
            snapshot = chain.next(execution, state, id=snapshot_id, at=now, is_final=False)
            await transaction.add_snapshot(snapshot)
            execution = replace(execution, last_snapshot_id=snapshot.id)
        await transaction.save_execution(execution)
        if session is not None:
            await self._append_note(transaction, session, execution, resumed.text)
        if execution.status is ExecutionStatus.PENDING:
            await self._deps.jobs.enqueue(transaction, execution.id)
        return execution

    async def _append_note(
        self, transaction: Transaction, session: Session, execution: Execution, text: str
    ) -> None:
        at = later_than(session, execution.updated_at)
        is_queued = execution.status is ExecutionStatus.PENDING
        kind = EventType.EXECUTION_QUEUED if is_queued else EventType.EXECUTION_PAUSED
        message = queued_message(execution, session, at, text, self._request_id)
        message = replace(message, metadata={"event_type": kind.value})
        await transaction.append(session, [Occurrence.of_note(message, kind)])
        await transaction.save_session(
            replace(
                session,
                updated_at=at,
                last_execution_id=session.last_execution_id or execution.id,
                last_snapshot_id=execution.last_snapshot_id or session.last_snapshot_id,
            )
        )


async def _check_turn(transaction: Transaction, session: Session, execution: Execution) -> None:
    """Raise ``ConflictError`` unless an execution that had ended may be its session's next."""
    why = None
    if session.status is SessionStatus.CLOSED:
        why = f"session {session.id} is closed"
    elif others := await transaction.unfinished(session.id):
        why = f"execution {others[0].id} of its session is {others[0].status}; wait for its end"
    elif has_no_states_any_more(execution):
        why = "its states were removed by retention"
    elif execution.last_snapshot_id not in (None, session.last_snapshot_id):
        why = "its session has gone on since; fork it instead"
    if why is not None:
        raise ConflictError(
            f"execution {execution.id} ({execution.status}) can't be resumed: {why}",
            code="not_resumable",
        )


def _fence(execution: Execution) -> tuple[object, ...]:
    return execution.status, execution.last_snapshot_id, execution.attempt
