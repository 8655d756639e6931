"""A paused or set-aside execution is changed and goes on: its new state, status and job.

The state is read and changed before the transaction; within it, under the lock, the execution must
still be the one that was read. Called by ``lifecycle``.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import ConflictError, NotThereError
from stepwell.sessions.ids import derived_id
from stepwell.sessions.intake.admission import Desk
from stepwell.sessions.intake.queue_entry import later_than, queued_message
from stepwell.sessions.log import message_event
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import EventType, Execution, Session, SessionStatus
from stepwell.sessions.snapshot_chain import SnapshotChain
from stepwell.sessions.views.removed_snapshots import has_no_states_any_more
from stepwell.state import AgentState


class Changed(Exception):
    """The execution is not what it was when it was read; nothing was written."""


class TakenUp(Struct, frozen=True, kw_only=True, eq=False):
    """What an execution becomes: its row, its state if that changed, and what its session reads."""

    execution: Execution
    state: AgentState | None
    text: str


Decide = Callable[[Execution, AgentState | None], TakenUp]
"""What is to become of an execution with that state; raises if it can't be so."""


async def there(transaction: Transaction, execution_id: str) -> Execution:
    """The execution; raises ``NotThereError``."""
    execution = await transaction.execution(execution_id)
    if execution is None:
        raise NotThereError("execution", execution_id)
    return execution


async def locked(transaction: Transaction, execution_id: str) -> tuple[Session | None, Execution]:
    """The execution and its session, locked in the order in which everybody locks them."""
    known = await there(transaction, execution_id)
    session = None
    if known.session_id is not None:
        session = await transaction.session(known.session_id, lock=True)
    execution = await transaction.execution(execution_id, lock=True)
    if execution is None:
        raise NotThereError("execution", execution_id)
    return session, execution


class TakingUp:
    """One wish about an execution; its ids are the same however often it is tried."""

    def __init__(self, desk: Desk, store: Store, execution_id: str, wish_id: str) -> None:
        self._desk = desk
        self._store = store
        self._execution_id = execution_id
        self._snapshot_id = derived_id(execution_id, "wish", wish_id)
        self._wish_id = wish_id

    async def work(
        self, read: Execution, decide: Decide
    ) -> Callable[[Transaction], Awaitable[Execution]]:
        """The work of the transaction, for the execution as it was read."""
        chain, state = SnapshotChain(self._desk.settings.snapshot_growth), None
        if (last := read.last_snapshot_id) is not None:
            state = await self._store.read(lambda transaction: chain.load(transaction, last))
        taken_up = decide(read, state)

        async def write(transaction: Transaction) -> Execution:
            session, now = await locked(transaction, self._execution_id)
            if now.metadata.get("wish") == self._wish_id:
                return now
            if _fence(now) != _fence(read) or not await chain.has_its_place(transaction):
                raise Changed
            if session is not None and read.status.is_terminal:
                await _check_turn(transaction, session, read)
            return await self._write(transaction, session, taken_up, chain)

        return write

    async def _write(
        self,
        transaction: Transaction,
        session: Session | None,
        taken_up: TakenUp,
        chain: SnapshotChain,
    ) -> Execution:
        now = self._desk.clock.now()
        metadata = {**taken_up.execution.metadata, "wish": self._wish_id}
        execution = replace(taken_up.execution, updated_at=now, metadata=metadata)
        if (state := taken_up.state) is not None:
            snapshot_id = self._snapshot_id
            snapshot = chain.next(execution, state, id=snapshot_id, at=now, is_final=False)
            await transaction.add_snapshot(snapshot)
            execution = replace(execution, last_snapshot_id=snapshot.id)
        await transaction.save_execution(execution)
        if session is not None:
            await self._tell(transaction, session, execution, taken_up.text)
        if execution.status is ExecutionStatus.PENDING:
            await self._desk.jobs.enqueue(transaction, execution.id)
        return execution

    async def _tell(
        self, transaction: Transaction, session: Session, execution: Execution, text: str
    ) -> None:
        at = later_than(session, execution.updated_at)
        is_queued = execution.status is ExecutionStatus.PENDING
        kind = EventType.EXECUTION_QUEUED if is_queued else EventType.EXECUTION_PAUSED
        message = queued_message(execution, session, at, text, self._wish_id)
        message = replace(message, metadata={"event_type": kind.value})
        stored = await transaction.add_messages(session, [message])
        await transaction.append_events(session, [message_event(m, kind) for m in stored])
        await transaction.save_session(
            replace(
                session,
                updated_at=at,
                last_execution_id=session.last_execution_id or execution.id,
                last_snapshot_id=execution.last_snapshot_id or session.last_snapshot_id,
            )
        )


async def _check_turn(transaction: Transaction, session: Session, execution: Execution) -> None:
    """Whether an execution that was over may be its session's next."""
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
