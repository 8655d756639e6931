"""The leases of one worker: taken, renewed and let go of, each in one transaction.

Nothing is lost when the database does not answer: a lease that can't be touched runs out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Jobs, Lease, Store, Transaction
from stepwell.sessions.records import Execution, ExecutionStatus
from stepwell.sessions.takeovers import claimed, takeover_of, takeover_text, with_stopped_attempt

logger = logging.getLogger("stepwell.worker")


class Leases:
    """What a worker holds, as the database knows it.

    Executions of agents that it does not know are left for others; but one whose end is wished for
    needs no agent, and perhaps nobody has that one any more. With ``sessions`` it is a worker of
    those alone, as they are when it looks: all else is left as it is.
    """

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        *,
        knows: Callable[[str], bool],
        worker_id: str,
        seconds: float,
        clock: Clock,
        sessions: Collection[str] | None = None,
    ) -> None:
        self._knows = knows
        self._sessions = sessions
        self._foreign: set[str] = set()
        """Waiting executions that it has looked at and left."""
        self._warned_of: set[str] = set()
        self._store = store
        self._jobs = jobs
        self._worker_id = worker_id
        self._seconds = seconds
        self._clock = clock

    async def claim(self, execution_id: str) -> Execution | None:
        """That execution, if it is there to be had."""
        try:
            claim = await self._store.write(lambda tx: self._claim(tx, execution_id), name="claim")
        except StoreUnavailableError as error:
            logger.warning("execution %s can't be claimed: %s", execution_id, error)
            return None
        _log_takeovers([] if claim is None else [claim])
        return claim

    async def claim_some(self, limit: int, *, but: Collection[str] = ()) -> list[Execution]:
        """The oldest that are there to be had, but for these."""

        async def claim(tx: Transaction) -> list[Execution]:
            free = await self.free(tx, limit, but=but)
            claims = [await self._claim(tx, execution_id) for execution_id in free]
            return [execution for execution in claims if execution is not None]

        try:
            # A look first: the idle must not write.
            if not await self._store.read(lambda tx: self.free(tx, limit, but=but)):
                return []
            claims = await self._store.write(claim, name="claim")
        except StoreUnavailableError as error:
            logger.warning("worker %s can't look for work: %s", self._worker_id, error)
            return []
        _log_takeovers(claims)
        return claims

    async def free(
        self, tx: Transaction, limit: int, *, but: Collection[str] = ()
    ) -> Sequence[str]:
        """The oldest that it could claim. Those of other agents do not stand in the way, however
        many they are."""
        if self._sessions is not None:
            heads = await self._free_heads(tx, self._sessions)
            return [id for id in heads if id not in but][:limit]
        now, ours, others = self._clock.now(), list[str](), {*but, *self._foreign}
        while True:
            most = limit + len(others)
            found = await tx.claimable(now, limit=most)
            for execution_id in found:
                if execution_id in others or execution_id in ours:
                    continue
                if await self._is_ours(tx, execution_id):
                    ours.append(execution_id)
                else:
                    others.add(execution_id)
            if len(ours) >= limit or len(found) < most:
                self._foreign.intersection_update(found)
                return ours[:limit]

    async def _free_heads(self, tx: Transaction, sessions: Collection[str]) -> list[str]:
        """Of these few sessions; what waits elsewhere is not even looked at, however much it is."""
        now, found = self._clock.now(), list[str]()
        for session_id in tuple(sessions):
            unfinished = await tx.unfinished(session_id)
            if unfinished and _is_free(unfinished[0], now) and self._may_have(unfinished[0]):
                found.append(unfinished[0].id)
        return found

    async def _is_ours(self, tx: Transaction, execution_id: str) -> bool:
        row = await tx.execution(execution_id)
        return row is not None and self._may_have(row)

    def _may_have(self, row: Execution) -> bool:
        if self._sessions is not None and row.session_id not in self._sessions:
            return False
        if self._knows(row.agent_type) or row.cancel_requested is not None:
            return True
        if row.status is ExecutionStatus.PENDING:  # one with a worker may yet be wished to end
            self._foreign.add(row.id)
        if row.agent_type not in self._warned_of:
            self._warned_of.add(row.agent_type)
            logger.warning(
                "worker %s has no agent %r and leaves its executions, such as %s, for others",
                self._worker_id,
                row.agent_type,
                row.id,
            )
        return False

    async def renew(
        self, execution: Execution, opened: Callable[[], Awaitable[Store]], *, within: float
    ) -> Lease | None:
        """A longer lease; None if the database does not answer in so many seconds. Raises
        ``LostLeaseError``. Called in the heartbeat's loop, whose store ``opened`` gives."""

        async def renew(tx: Transaction) -> Lease:
            return await tx.renew(execution, self._end(self._clock.now()))

        try:
            async with asyncio.timeout(within):
                return await (await opened()).write(renew, name="renew")
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
        before = await tx.execution(execution_id)
        if before is None or not self._may_have(before):
            return None
        return await claimed(
            tx,
            before,
            worker_id=self._worker_id,
            now=self._clock.now(),
            lease_seconds=self._seconds,
        )

    async def _release(self, tx: Transaction, execution: Execution) -> None:
        now_there = await tx.execution(execution.id, lock=True)
        if now_there is None or now_there.attempt != execution.attempt:
            return
        if now_there.status is not ExecutionStatus.RUNNING:
            return
        # Waiting again, and not with a lease that ran out: that would count as a crash.
        waiting = replace(
            with_stopped_attempt(now_there),
            status=ExecutionStatus.PENDING,
            worker_id=None,
            lease_until=None,
            updated_at=self._clock.now(),
        )
        await tx.save_execution(waiting)
        await self._jobs.enqueue(tx, execution.id)

    def _end(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self._seconds)


def _is_free(head: Execution, now: datetime) -> bool:
    """Whether the head of a session waits for a worker, or has lost the one it had."""
    if head.status is ExecutionStatus.RUNNING:
        return head.lease_until is not None and head.lease_until < now
    return head.status is ExecutionStatus.PENDING


def _log_takeovers(claims: Sequence[Execution]) -> None:
    for execution in claims:
        if (entry := takeover_of(execution)) is not None:
            logger.warning(
                "execution %s (session %s): %s",
                execution.id,
                execution.session_id,
                takeover_text(entry),
            )
