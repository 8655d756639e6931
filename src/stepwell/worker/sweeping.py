"""The sweeper: finds executions that wait without a job, and clears away jobs of dead workers.

Jobs get lost with their workers, and a lease that ran out has none. All workers sweep, one at a
time; the truth is in the executions, so the jobs may be deleted and made anew.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from stepwell.clock import Clock
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.settings import SessionSettings
from stepwell.worker.procrastinate_jobs import QUEUE, SOONER, insert_job, queueing_lock

logger = logging.getLogger("stepwell.worker")

Claimable = Callable[[Transaction, int], Awaitable[Sequence[str]]]
"""Which executions to look after: a worker's own, or jobs nobody can use would be made for ever."""

AT_ONCE = 200
"""Executions that one sweep looks at; the oldest come first, so the others have their turn."""

_SWEEP_LOCK = 0x5E7_0C4F
_CLEAR_EVERY = 10
_DEAD_AFTER_LEASES = 10

_WAITING = """
SELECT queueing_lock FROM procrastinate_jobs WHERE status = 'todo' AND queueing_lock = ANY(%s)
"""
_DELETE_WORKERS = """
DELETE FROM procrastinate_workers WHERE last_heartbeat < now() - make_interval(secs => %s)
"""
_DELETE_JOBS = """
DELETE FROM procrastinate_jobs
WHERE queue_name = %s AND status <> 'todo' AND (status <> 'doing' OR worker_id IS NULL)
"""


class Sweeper:
    """Called every now and then by each worker; most of the time it only reads."""

    def __init__(
        self,
        store: Store,
        settings: SessionSettings,
        clock: Clock,
        claimable: Claimable | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._claimable = claimable or self._any
        self._sweeps = 0

    @property
    def every_seconds(self) -> float:
        """How often to sweep: with the lease, this bounds how long a takeover takes."""
        return self._settings.poll_seconds

    async def sweep(self) -> int:
        """Make jobs for those that have none; how many."""
        self._sweeps += 1
        try:
            if self._sweeps % _CLEAR_EVERY == 1:
                await self._store.write(self._clear, name="clear_jobs")
                await self._store.read(self._compare_clocks)
            if not await self._store.read(self._forgotten):
                return 0
            found = await self._store.write(self._enqueue, name="sweep")
        except (StoreUnavailableError, DBAPIError) as error:
            logger.warning("can't sweep: %s", error)
            return 0
        if found:
            logger.info("found %d executions that waited without a job", found)
        return found

    async def _forgotten(self, tx: Transaction) -> Sequence[str]:
        claimable = await self._claimable(tx, AT_ONCE)
        if not claimable:
            return ()
        connection: AsyncConnection = tx.connection
        locks = {execution_id: queueing_lock(execution_id) for execution_id in claimable}
        rows = await connection.exec_driver_sql(_WAITING, (list(locks.values()),))
        waiting = {row[0] for row in rows}
        return [execution_id for execution_id, lock in locks.items() if lock not in waiting]

    async def _any(self, tx: Transaction, limit: int) -> Sequence[str]:
        return await tx.claimable(self._clock.now(), limit=limit)

    async def _enqueue(self, tx: Transaction) -> int:
        if not await _alone(tx.connection):
            return 0
        forgotten = await self._forgotten(tx)
        for execution_id in forgotten:
            await insert_job(tx, execution_id, SOONER)
        return len(forgotten)

    async def _compare_clocks(self, tx: Transaction) -> None:
        """Leases are times, so workers whose clocks differ take each other's executions."""
        connection: AsyncConnection = tx.connection
        told = (await connection.exec_driver_sql("SELECT clock_timestamp()")).scalar_one()
        ahead = (self._clock.now() - told).total_seconds()
        # Half of what a lease has left when its heart beats: two clocks may be off.
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

    async def _clear(self, tx: Transaction) -> None:
        """Workers that are gone, what they were doing, and what is over."""
        connection: AsyncConnection = tx.connection
        if not await _alone(connection):
            return
        dead_after = self._settings.lease_seconds * _DEAD_AFTER_LEASES
        await connection.exec_driver_sql(_DELETE_WORKERS, (dead_after,))
        await connection.exec_driver_sql(_DELETE_JOBS, (QUEUE,))


async def _alone(connection: AsyncConnection) -> bool:
    """Whether no other worker sweeps right now; until the transaction ends."""
    found = await connection.exec_driver_sql("SELECT pg_try_advisory_xact_lock(%s)", (_SWEEP_LOCK,))
    return bool(found.scalar_one())
