"""What is deleted with time: step snapshots, the event log, whole sessions. Run now and then.

Every transaction is bounded by one execution, one session's log or one session. What is kept stays
loadable: a snapshot whose chain goes is made whole first. Running it again changes nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.reading import Reader
from stepwell.sessions.records import Execution, Session, Snapshot

ALL = 1_000_000_000
EVENTS_AT_ONCE = 5_000
_SERIALIZER = AgentStateSerializer()


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    """How long things are kept; None keeps them.

    >>> RetentionPolicy(events_days=-1)
    Traceback (most recent call last):
    ...
    stepwell.errors.ConfigurationError: events_days must be above zero, got -1
    """

    keep_executions: int | None = None
    """Step snapshots are kept of so many newest executions of a session, always of its last one;
    older executions keep the final one, whole."""
    events_days: float | None = None
    """Older events are deleted from the logs of sessions in which nothing runs or waits."""
    sessions_days: float | None = None
    """Sessions in which nothing happened for so long are deleted with all that is theirs."""

    def __post_init__(self) -> None:
        for name in ("keep_executions", "events_days", "sessions_days"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                raise ConfigurationError(f"{name} must be above zero, got {limit!r}")


class RetentionReport(Struct, frozen=True, kw_only=True):
    """How much was deleted."""

    deleted_snapshots: int = 0
    deleted_events: int = 0
    deleted_sessions: int = 0


class Retention:
    """Deletes what a policy does not keep."""

    def __init__(
        self, store: Store, policy: RetentionPolicy, *, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._policy = policy
        self._clock = clock or SystemClock()
        self._reader = Reader(store)

    async def run(self) -> RetentionReport:
        """Delete it now."""
        now, policy = self._clock.now(), self._policy
        sessions = snapshots = events = 0
        if policy.sessions_days is not None:
            sessions = await self._delete_sessions(now - timedelta(days=policy.sessions_days))
        if policy.keep_executions is None and policy.events_days is None:
            return RetentionReport(deleted_sessions=sessions)
        for session_id in await self._store.read(lambda tx: tx.finished_before(now, limit=ALL)):
            if policy.events_days is not None:
                before = now - timedelta(days=policy.events_days)
                events += await self._delete_events(session_id, before)
            if policy.keep_executions is not None:
                snapshots += await self._delete_snapshots(session_id, policy.keep_executions)
        return RetentionReport(
            deleted_snapshots=snapshots, deleted_events=events, deleted_sessions=sessions
        )

    async def _delete_sessions(self, before: datetime) -> int:
        deleted = 0
        for session_id in await self._store.read(lambda tx: tx.finished_before(before, limit=ALL)):
            deleted += await self._store.write(_deletion(session_id, before), name="retention")
        return deleted

    async def _delete_events(self, session_id: str, before: datetime) -> int:
        kept, last = await self._store.read(lambda tx: _last_before(tx, session_id, before))
        deleted = 0
        while kept < last:
            kept = min(kept + EVENTS_AT_ONCE, last)
            deleted += await self._store.write(_event_deletion(session_id, kept), name="retention")
        return deleted

    async def _delete_snapshots(self, session_id: str, keep: int) -> int:
        session, finished = await self._store.read(lambda tx: _finished(tx, session_id))
        if session is None:
            return 0
        deleted = 0
        for execution in older_executions(session, finished, keep):
            deleted += await self._only_final(session_id, execution)
        return deleted

    async def _only_final(self, session_id: str, execution: Execution) -> int:
        """Leave an execution only the snapshot that it ended with."""
        snapshots = await self._store.read(lambda tx: tx.snapshots(execution.id))
        if len(snapshots) < 2:
            return 0
        final = next((it for it in snapshots if it.id == execution.last_snapshot_id), snapshots[-1])
        whole = None
        if not final.is_whole:
            whole = _SERIALIZER.to_json(await self._reader.state_of(final.id)).decode()

        async def work(transaction: Transaction) -> int:
            await transaction.session(session_id, lock=True)
            now = await transaction.execution(execution.id, lock=True)
            newest = await transaction.snapshot(final.id)
            if now is None or not now.status.is_over or newest is None:
                return 0
            if whole is not None and not newest.is_whole:
                await transaction.rewrite_snapshot(_made_whole(newest, whole))
            return await transaction.delete_snapshots(execution.id, keep=[final.id])

        return await self._store.write(work, name="retention")


def _made_whole(snapshot: Snapshot, document: str) -> Snapshot:
    return replace(snapshot, chain_id=snapshot.id, position=0, state_json=document)


async def _finished(
    transaction: Transaction, session_id: str
) -> tuple[Session | None, Sequence[Execution]]:
    session = await transaction.session(session_id)
    return session, await transaction.finished_executions(session_id)


def older_executions(session: Session, finished: Sequence[Execution], keep: int) -> list[Execution]:
    """Those that keep only their final snapshot, oldest first; subagents go with their parent."""
    roots = [it for it in finished if it.parent_execution_id is None]
    kept = {it.id for it in roots[-keep:]} | {session.last_execution_id}
    older: list[Execution] = []
    for execution in sorted(finished, key=lambda it: (it.created_at, it.id)):
        owner = execution.parent_execution_id or execution.id
        if execution.id in kept or owner in kept:
            kept.add(execution.id)  # and so are its own subagents
        else:
            older.append(execution)
    return older


async def _last_before(transaction: Transaction, session_id: str, at: datetime) -> tuple[int, int]:
    """The number before the oldest event, and that of the newest one that is older than a time:
    the same if none is. The log is in order of time, so it is found by halving."""
    oldest, high = await transaction.event_range(session_id)
    low = oldest - 1  # all up to low are older, all from high + 1 on are not
    while low < high:
        middle = (low + high + 1) // 2
        event = next(iter(await transaction.events_after(session_id, middle - 1, limit=1)), None)
        if event is not None and event.created_at < at:
            low = middle
        else:
            high = middle - 1
    return oldest - 1, low


def _event_deletion(session_id: str, up_to: int) -> Callable[[Transaction], Awaitable[int]]:
    async def work(transaction: Transaction) -> int:
        if await transaction.session(session_id, lock=True) is None:
            return 0
        return await transaction.delete_events(session_id, up_to=up_to)

    return work


def _deletion(session_id: str, before: datetime) -> Callable[[Transaction], Awaitable[int]]:
    async def work(transaction: Transaction) -> int:
        session = await transaction.session(session_id, lock=True)
        if session is None or session.updated_at >= before:
            return 0
        if await transaction.unfinished(session_id):
            return 0
        await transaction.delete_session(session_id)
        return 1

    return work
