"""Claims and releases executions for one worker.

Nothing is lost when the database is unavailable: what is not released is taken over once the
worker's lease has expired.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.takeovers import (
    note_takeover,
    takeover_of,
    takeover_text,
    with_stopped_attempt,
)
from stepwell.sessions.claim_ports import Claim
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Jobs, Store, Transaction
from stepwell.sessions.records import Execution
from stepwell.sessions.settings import SessionSettings
from stepwell.worker.lease import WorkerLease

logger = logging.getLogger("stepwell.worker")

Find = Callable[[Transaction], Awaitable[Sequence[str]]]
_CHECK_SECONDS = 60.0
"""Seconds between an idle worker's checks for unknown agents and of the database's clock."""


class Claims:
    """Claims executions under the worker's lease.

    It leaves executions of agents that it does not have to others, except those to cancel, which
    need no agent. With ``sessions`` it claims only executions of these sessions.
    """

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        lease: WorkerLease,
        *,
        agents: Callable[[], Collection[str]],
        on_lost: Callable[[str], None],
        settings: SessionSettings,
        clock: Clock,
        sessions: Collection[str] | None = None,
    ) -> None:
        self._store, self._jobs, self._lease, self._on_lost = store, jobs, lease, on_lost
        self._agents, self._sessions = agents, sessions
        self._settings, self._clock = settings, clock
        self._warned_of: set[str] = set()
        self._checked_at: float | None = None

    async def claim(self, execution_id: str) -> Execution | None:
        """Claim that execution, if it is free."""

        async def find(tx: Transaction) -> Sequence[str]:
            row = await tx.execution(execution_id)
            return () if row is None or not self._may_claim(row) else (execution_id,)

        claimed = await self._claim(find)
        return claimed[0] if claimed else None

    async def claim_some(self, limit: int) -> Sequence[Execution]:
        """Claim at most so many in one transaction, in the order of ``tx.claimable``."""
        try:
            # An idle worker must not write.
            if not await self._store.read(self._is_work_waiting):
                await self._check_surroundings()
                return []
        except StoreUnavailableError as error:
            logger.warning("worker %s could not look for work: %s", self._lease.worker_id, error)
            return []
        return await self._claim(lambda tx: self._find(tx, limit))

    async def release(self, executions: Sequence[Execution]) -> None:
        """Make these pending again, except those that others have claimed.

        Their runs must have ended: until the next claim nothing fences them off.
        """

        async def release(tx: Transaction) -> None:
            for execution in executions:
                await self._release(tx, execution)

        try:
            await self._store.write(release, name="release")
        except StoreUnavailableError as error:
            logger.warning("could not release executions; their lease expires: %s", error)

    async def leave(self) -> None:
        """Remove the worker's record; it must hold no executions."""
        worker_id = self._lease.worker_id
        try:
            await self._store.write(lambda tx: tx.remove_worker(worker_id), name="leave")
        except StoreUnavailableError as error:
            logger.warning("could not remove worker %s; its lease expires: %s", worker_id, error)

    async def _claim(self, find: Find) -> Sequence[Execution]:
        lease, worker_id, asked_at = self._lease, self._lease.worker_id, self._clock.monotonic()

        async def claim(tx: Transaction) -> list[Execution] | None:
            if not await lease.renew(tx, worker_id):
                return None
            now = self._clock.now()
            expired = await tx.remove_expired_workers(now)
            claims = await tx.claim(await find(tx), worker_id=worker_id, now=now)
            return [await self._note_takeover(tx, each, expired, now) for each in claims]

        try:
            claimed = await self._store.write(claim, name="claim")
        except StoreUnavailableError as error:
            logger.warning("worker %s could not claim: %s", worker_id, error)
            return []
        if claimed is None:
            self._on_lost(worker_id)
            return []
        lease.confirm(worker_id, asked_at)
        _log_takeovers(claimed)
        return claimed

    async def _note_takeover(
        self, tx: Transaction, claim: Claim, expired: Mapping[str, datetime], now: datetime
    ) -> Execution:
        # Another worker removed the record: the lease has just expired.
        ended_at = expired.get(claim.taken_from or "", now)
        silent_seconds = self._settings.lease_seconds + (now - ended_at).total_seconds()
        return await note_takeover(tx, claim, now=now, silent_seconds=silent_seconds)

    async def _is_work_waiting(self, tx: Transaction) -> bool:
        if self._sessions is not None:
            return bool(await self._free_heads(tx, self._sessions))
        return await tx.is_work_waiting(self._clock.now(), agents=self._agents())

    async def _find(self, tx: Transaction, limit: int) -> Sequence[str]:
        if self._sessions is not None:
            return (await self._free_heads(tx, self._sessions))[:limit]
        return await tx.claimable(self._clock.now(), limit=limit, agents=self._agents())

    async def _free_heads(self, tx: Transaction, sessions: Collection[str]) -> list[str]:
        """Return the free heads of these few sessions, without a query over all that wait."""
        found: list[str] = []
        for session_id in tuple(sessions):
            unfinished = await tx.unfinished(session_id)
            if unfinished and await self._is_free(tx, unfinished[0]):
                found.append(unfinished[0].id)
        return found

    async def _is_free(self, tx: Transaction, head: Execution) -> bool:
        if not self._may_claim(head):
            return False
        if head.status is not ExecutionStatus.RUNNING:
            return head.status is ExecutionStatus.PENDING
        worker = None if head.worker_id is None else await tx.worker(head.worker_id)
        return worker is None or worker.lease_until < self._clock.now()

    def _may_claim(self, row: Execution) -> bool:
        if self._sessions is not None and row.session_id not in self._sessions:
            return False
        if row.agent_type in self._agents() or row.cancel_requested is not None:
            return True
        self._warn_of(row.agent_type)
        return False

    async def _check_surroundings(self) -> None:
        """Log, now and then, what keeps executions waiting or breaks leases."""
        now = self._clock.monotonic()
        if self._checked_at is not None and now - self._checked_at < _CHECK_SECONDS:
            return
        self._checked_at = now
        agents = await self._store.read(lambda tx: tx.waiting_agents())
        for agent_type in set(agents) - set(self._agents()) if self._sessions is None else ():
            self._warn_of(agent_type)
        database_time = await self._store.read(lambda tx: tx.database_time())
        if database_time is not None:
            self._compare_clocks(database_time)

    def _warn_of(self, agent_type: str) -> None:
        if agent_type not in self._warned_of:
            self._warned_of.add(agent_type)
            logger.warning(
                "worker %s has no agent %r and leaves its executions to others",
                self._lease.worker_id,
                agent_type,
            )

    def _compare_clocks(self, database_time: datetime) -> None:
        """Warn if this machine's clock differs from the database's: leases depend on it."""
        ahead = (self._clock.now() - database_time).total_seconds()
        # Half of what a lease has left at a heartbeat, since two clocks may be off.
        allowed = (self._settings.lease_seconds - self._settings.heartbeat_seconds) / 2
        if abs(ahead) > allowed:
            logger.error(
                "the clock of this machine is %.1f s %s the database's, and leases of %g s allow "
                "%.1f s; set the clock, or raise lease_seconds on all workers",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
                self._settings.lease_seconds,
                allowed,
            )

    async def _release(self, tx: Transaction, execution: Execution) -> None:
        row = await tx.execution(execution.id, lock=True)
        if row is None or row.attempt != execution.attempt:
            return
        if row.status is not ExecutionStatus.RUNNING:
            return
        # Pending, not running without a worker: that would count as a crash.
        waiting = replace(
            with_stopped_attempt(row),
            status=ExecutionStatus.PENDING,
            worker_id=None,
            updated_at=self._clock.now(),
        )
        await tx.save_execution(waiting)
        await self._jobs.enqueue(tx, execution.id)


def _log_takeovers(claimed: Sequence[Execution]) -> None:
    for execution in claimed:
        if (entry := takeover_of(execution)) is not None:
            logger.warning(
                "execution %s (session %s): %s",
                execution.id,
                execution.session_id,
                takeover_text(entry),
            )
