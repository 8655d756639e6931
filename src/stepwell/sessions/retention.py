"""What is deleted with time: the states of executions, the event log, whole sessions. Run now and
then; only sessions in which nothing runs or waits are touched.

Every transaction is bounded by one execution, one session's log or one session. What is kept stays
loadable: a snapshot whose chain goes is made whole first. Running it again changes nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError, SerializationError
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.errors import NotThereError
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import Execution, Snapshot
from stepwell.sessions.views.reader import Reader
from stepwell.sessions.views.removed_snapshots import has_no_states_any_more, without_states

logger = logging.getLogger("stepwell.sessions")

ALL = 1_000_000_000
EVENTS_AT_ONCE = 5_000
_SERIALIZER = AgentStateSerializer()
_Bound = TypeVar("_Bound")


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    """How long things are kept; None keeps them.

    >>> RetentionPolicy(events_days=-1)
    Traceback (most recent call last):
    ...
    stepwell.errors.ConfigurationError: events_days must be above zero, got -1
    """

    keep_executions: int | None = None
    """States are kept of so many newest executions of a session, and always of the one that it
    goes on from; older ones keep their row, messages, decision and output."""
    events_days: float | None = None
    """Older events are deleted from the logs of sessions in which nothing runs or waits."""
    sessions_days: float | None = None
    """Sessions in which nothing happened for so long are deleted with all that is theirs."""

    def __post_init__(self) -> None:
        for name in ("keep_executions", "events_days", "sessions_days"):
            limit = getattr(self, name)
            if limit is not None and not 0 < limit < inf:
                raise ConfigurationError(f"{name} must be above zero, got {limit!r}")


class RetentionReport(Struct, frozen=True, kw_only=True):
    """How much was deleted, and how many sessions were left alone because a row of theirs is
    damaged; the log names them."""

    deleted_snapshots: int = 0
    deleted_events: int = 0
    deleted_sessions: int = 0
    skipped_sessions: int = 0


class _Deleted(Struct, frozen=True):
    count: int = 0
    skipped: frozenset[str] = frozenset()


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
        sessions = events = snapshots = _Deleted()
        if policy.sessions_days is not None:
            before = now - timedelta(days=policy.sessions_days)
            sessions = await self._delete_of_each(before, self._delete_session, before)
        if policy.events_days is not None:
            before = now - timedelta(days=policy.events_days)
            events = await self._delete_of_each(now, self._delete_events, before)
        if policy.keep_executions is not None:
            keep = policy.keep_executions
            snapshots = await self._delete_of_each(now, self._delete_states, keep)
        return RetentionReport(
            deleted_snapshots=snapshots.count,
            deleted_events=events.count,
            deleted_sessions=sessions.count,
            skipped_sessions=len(sessions.skipped | events.skipped | snapshots.skipped),
        )

    async def _delete_of_each(
        self,
        finished: datetime,
        delete: Callable[[str, _Bound], Awaitable[int]],
        bound: _Bound,
    ) -> "_Deleted":
        """Delete something of each session that was finished before that time."""
        count, skipped = 0, set[str]()
        found = await self._store.read(lambda tx: tx.finished_before(finished, limit=ALL))
        for session_id in found:
            try:
                count += await delete(session_id, bound)
            except (SerializationError, NotThereError) as error:
                # What can't be read must not keep all others from being removed.
                logger.error("retention skips session %s: %s", session_id, error)
                skipped.add(session_id)
        return _Deleted(count, frozenset(skipped))

    async def _delete_session(self, session_id: str, before: datetime) -> int:
        return await self._store.write(_deletion(session_id, before), name="retention")

    async def _delete_events(self, session_id: str, before: datetime) -> int:
        kept, last = await self._store.read(lambda tx: _last_before(tx, session_id, before))
        deleted = 0
        while kept < last:
            kept = min(kept + EVENTS_AT_ONCE, last)
            deleted += await self._store.write(_event_deletion(session_id, kept), name="retention")
        return deleted

    async def _delete_states(self, session_id: str, keep: int) -> int:
        removal = await self._store.read(lambda tx: _removal(tx, session_id, keep))
        if removal.executions and removal.last_snapshot_id is not None:
            # Older states stay as long as the newest one can't be read.
            await self._reader.state_of(removal.last_snapshot_id)
        for snapshot_id in removal.new_heads:
            if not await self._make_whole(session_id, snapshot_id):
                return 0
        deleted = 0
        for execution in removal.executions:
            work = _state_deletion(session_id, execution, self._clock.now())
            deleted += await self._store.write(work, name="retention")
        return deleted

    async def _make_whole(self, session_id: str, snapshot_id: str) -> bool:
        """Let a snapshot stand without those before it; whether it does."""
        state = await self._reader.state_of(snapshot_id)
        document = (await asyncio.to_thread(_SERIALIZER.to_json, state)).decode()

        async def work(transaction: Transaction) -> bool:
            if not await _is_quiet(transaction, session_id):
                return False
            snapshot = await transaction.snapshot(snapshot_id)
            if snapshot is None:
                return False
            if not snapshot.is_whole:
                await transaction.rewrite_snapshot(
                    replace(snapshot, chain_id=snapshot.id, position=0, state_json=document)
                )
            return True

        return await self._store.write(work, name="retention")


class Removal(Struct, frozen=True, kw_only=True):
    """What is to be done about the snapshots of a session."""

    executions: Sequence[Execution] = ()
    """Those that lose theirs, in the order in which that can be done: what is built on others
    goes before them."""
    new_heads: Sequence[str] = ()
    """Snapshots that stay and are built on some that go."""
    last_snapshot_id: str | None = None
    """The session's newest snapshot, which stays."""


async def _removal(transaction: Transaction, session_id: str, keep: int) -> Removal:
    session = await transaction.session(session_id)
    if session is None:
        return Removal()
    last = None
    if session.last_snapshot_id is not None:
        last = await transaction.snapshot(session.last_snapshot_id)
    finished = await transaction.finished_executions(session_id)
    owner_id = None if last is None else last.agent_execution_id
    older = [
        execution
        for execution in older_executions(finished, keep, owner_id)
        if not has_no_states_any_more(execution)
        and (execution.last_snapshot_id or await transaction.snapshots(execution.id))
    ]
    if not older:
        return Removal()
    going = {execution.id for execution in older}
    staying = [
        snapshot
        for execution in finished
        if execution.id not in going and not has_no_states_any_more(execution)
        for snapshot in await transaction.snapshots(execution.id)
    ]
    older.sort(key=lambda it: (it.completed_at or it.updated_at, it.id), reverse=True)
    return Removal(
        executions=older,
        new_heads=new_heads(staying),
        last_snapshot_id=session.last_snapshot_id,
    )


def older_executions(
    finished: Sequence[Execution], keep: int, owner_id: str | None
) -> list[Execution]:
    """Those that keep no states, oldest first; subagents go with their parent. The owner of the
    session's last snapshot is never among them."""
    roots = [it for it in finished if it.parent_execution_id is None]
    kept = {it.id for it in roots[-keep:]} | {owner_id}
    older: list[Execution] = []
    for execution in sorted(finished, key=lambda it: (it.created_at, it.id)):
        if execution.id in kept or (execution.parent_execution_id or execution.id) in kept:
            kept.add(execution.id)  # and so are its own subagents
        else:
            older.append(execution)
    return older


def new_heads(staying: Sequence[Snapshot]) -> list[str]:
    """The snapshots that stay, of which the one right before in their chain does not."""
    places = {(it.chain_id, it.position) for it in staying}
    return [
        it.id for it in staying if not it.is_whole and (it.chain_id, it.position - 1) not in places
    ]


async def _is_quiet(transaction: Transaction, session_id: str) -> bool:
    """Lock the session; whether nothing runs or waits in it, so that nobody builds on its chain."""
    if await transaction.session(session_id, lock=True) is None:
        return False
    return not await transaction.unfinished(session_id)


def _state_deletion(
    session_id: str, execution: Execution, at: datetime
) -> Callable[[Transaction], Awaitable[int]]:
    async def work(transaction: Transaction) -> int:
        if not await _is_quiet(transaction, session_id):
            return 0
        now = await transaction.execution(execution.id, lock=True)
        if now is None or _mark(now) != _mark(execution):
            return 0  # it was taken up again meanwhile
        deleted = await transaction.delete_snapshots(execution.id, keep=())
        if not await transaction.snapshots(execution.id):
            await transaction.save_execution(without_states(now, at))
        return deleted

    return work


def _mark(execution: Execution) -> tuple[object, ...]:
    return execution.status, execution.last_snapshot_id, execution.attempt


async def _last_before(transaction: Transaction, session_id: str, at: datetime) -> tuple[int, int]:
    """The number before the oldest event, and that of the newest one older than a time, if any."""
    oldest, _ = await transaction.entry_range(session_id)
    return oldest - 1, await transaction.last_event_before(session_id, at)


def _event_deletion(session_id: str, up_to: int) -> Callable[[Transaction], Awaitable[int]]:
    async def work(transaction: Transaction) -> int:
        if await transaction.session(session_id, lock=True) is None:
            return 0
        return await transaction.delete_entries(session_id, up_to=up_to)

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
