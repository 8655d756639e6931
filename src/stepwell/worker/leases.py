"""The leases of one worker: taken, renewed and let go of, each in one transaction.

Nothing is lost when the database does not answer: a lease that can't be touched runs out.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Jobs, Lease, Store, Transaction
from stepwell.sessions.records import Execution, ExecutionStatus

logger = logging.getLogger("stepwell.worker")


class Leases:
    """What a worker holds, as the database knows it."""

    def __init__(
        self, store: Store, jobs: Jobs, *, worker_id: str, seconds: float, clock: Clock
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._worker_id = worker_id
        self._seconds = seconds
        self._clock = clock

    async def claim(self, execution_id: str) -> Execution | None:
        """That execution, if it is there to be had."""
        try:
            return await self._store.write(lambda tx: self._claim(tx, execution_id), name="claim")
        except StoreUnavailableError as error:
            logger.warning("execution %s can't be claimed: %s", execution_id, error)
            return None

    async def claim_some(self, limit: int, *, but: Collection[str] = ()) -> list[Execution]:
        """The oldest that are there to be had, but for these."""

        async def free(tx: Transaction) -> list[str]:
            found = await tx.claimable(self._clock.now(), limit=limit + len(but))
            return [execution_id for execution_id in found if execution_id not in but][:limit]

        async def claim(tx: Transaction) -> list[Execution]:
            claims = [await self._claim(tx, execution_id) for execution_id in await free(tx)]
            return [execution for execution in claims if execution is not None]

        try:
            # A look first: the idle must not write.
            if not await self._store.read(free):
                return []
            return await self._store.write(claim, name="claim")
        except StoreUnavailableError as error:
            logger.warning("worker %s can't look for work: %s", self._worker_id, error)
            return []

    async def renew(self, execution: Execution, *, within: float) -> Lease | None:
        """A longer lease; None if the database does not answer in so many seconds. Raises
        ``LostLeaseError``."""

        async def renew(tx: Transaction) -> Lease:
            return await tx.renew(execution, self._end(self._clock.now()))

        try:
            async with asyncio.timeout(within):
                return await self._store.write(renew, name="renew")
        except (TimeoutError, StoreUnavailableError) as error:
            logger.warning("the lease of execution %s is not renewed: %r", execution.id, error)
            return None

    async def release(self, executions: Sequence[Execution]) -> None:
        """Make these claimable at once, but for those that others have by now.

        Their runs must have ended: until the next claim nothing would fence them off.
        """

        async def release(tx: Transaction) -> None:
            for execution in executions:
                await self._release(tx, execution)

        try:
            await self._store.write(release, name="release")
        except StoreUnavailableError as error:
            logger.warning("leases are not released, they run out by themselves: %s", error)

    async def _claim(self, tx: Transaction, execution_id: str) -> Execution | None:
        now = self._clock.now()
        return await tx.claim(
            execution_id, worker_id=self._worker_id, now=now, lease_until=self._end(now)
        )

    async def _release(self, tx: Transaction, execution: Execution) -> None:
        now_there = await tx.execution(execution.id, lock=True)
        if now_there is None or now_there.attempt != execution.attempt:
            return
        if now_there.status is not ExecutionStatus.RUNNING:
            return
        # Waiting again, and not with a lease that ran out: that would count as a crash.
        waiting = replace(
            now_there,
            status=ExecutionStatus.PENDING,
            worker_id=None,
            lease_until=None,
            updated_at=self._clock.now(),
        )
        await tx.save_execution(waiting)
        await self._jobs.enqueue(tx, execution.id)

    def _end(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self._seconds)
