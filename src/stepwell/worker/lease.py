"""The lease of one worker: its record in the database, which all its executions depend on.

``Claims`` and ``Heartbeat`` renew it, each in its own transactions and threads.
"""

import os
import socket
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version

from stepwell.clock import Clock
from stepwell.ids import IdFactory
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, WorkerRecord


class WorkerLease:
    """The record of a worker in the database.

    The record is added with the first claim and renewed while the worker holds executions. If
    another worker removed it meanwhile, the lease is lost and the worker continues under a new id.
    """

    def __init__(
        self,
        worker_id: str,
        *,
        agents: Callable[[], Collection[str]],
        seconds: float,
        clock: Clock,
        new_id: IdFactory,
    ) -> None:
        self.worker_id = worker_id
        self.renewed_at = clock.monotonic()
        """When the newest lease was requested, by the monotonic clock."""
        self._agents, self._seconds = agents, seconds
        self._clock, self._new_id = clock, new_id
        self._started_at = clock.now()
        self.is_held = False
        """Whether executions may depend on it."""
        self._to_disown: dict[str, tuple[Execution, float]] = {}

    async def renew(self, tx: Transaction, worker_id: str) -> bool:
        """Extend or start the lease of that id. Return False if another worker removed it. Call
        ``confirm`` after the commit."""
        for execution, _ in tuple(self._to_disown.values()):
            await tx.disown(execution)
        until = self._clock.now() + timedelta(seconds=self._seconds)
        if await tx.renew_worker(worker_id, until):
            return True
        if self.is_held:
            return False
        await tx.add_worker(self._record(worker_id, until))
        return True

    def confirm(self, worker_id: str, asked_at: float) -> None:
        """Note that a renewal that was requested at that time has committed."""
        if worker_id != self.worker_id:
            return
        self.renewed_at = max(self.renewed_at, asked_at)
        self.is_held = True
        for id, (_, since) in tuple(self._to_disown.items()):
            if since <= asked_at:
                self._to_disown.pop(id, None)

    def disown(self, execution: Execution) -> None:
        """Give an execution up with the next renewal: its run ended without a stored end, and
        nobody could take it over while the lease holds."""
        self._to_disown[execution.id] = (execution, self._clock.monotonic())

    def rest(self) -> None:
        """Note that no execution depends on the lease any longer: it may expire."""
        self.is_held = False

    def replace(self, worker_id: str) -> None:
        """Continue under a new id: the executions of the old one belong to others."""
        if worker_id != self.worker_id:
            return
        self.worker_id = f"worker-{self._new_id()}"
        self.is_held = False
        self._to_disown.clear()

    def _record(self, worker_id: str, until: datetime) -> WorkerRecord:
        return WorkerRecord(
            id=worker_id,
            lease_until=until,
            started_at=self._started_at,
            version=_version(),
            agents=tuple(sorted(self._agents())),
            host=socket.gethostname(),
            pid=os.getpid(),
        )


def _version() -> str:
    try:
        return version("stepwell")
    except PackageNotFoundError:
        return ""
