"""What workers need of a database: claims, fences and leases. Part of ``ports.Transaction``."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from stepwell.sessions.records import Execution, WorkerRecord


class Fenced(Struct, frozen=True, kw_only=True):
    """An execution whose newest attempt is the caller's, locked until the transaction ends."""

    execution: Execution
    """As it is now: others write to it as well, such as a request to cancel."""
    user_messages: int
    """How many messages users sent to it. Those beyond the ones that it began with are for the
    running loop to see before its next step."""


class HeldExecution(Struct, frozen=True, kw_only=True):
    """What a heartbeat reads of a running execution."""

    id: str
    attempt: int
    cancel_requested: str | None


class Claim(Struct, frozen=True, kw_only=True):
    """A claimed execution, and whether it was running before: then it is a takeover."""

    execution: Execution
    is_takeover: bool = False
    taken_from: str | None = None
    """The worker that had it; None if that one gave it up."""


class ClaimRows(Protocol):
    """Who may run an execution: claims, fences, workers and their leases."""

    async def claim(
        self, execution_ids: Sequence[str], *, worker_id: str, now: datetime
    ) -> Sequence[Claim]:
        """Claim those of them that are free: status running, one more attempt. Free is a pending
        head of a session, and a running one whose worker has no lease (then ``crashes`` goes up by
        one). Executions that another transaction has locked are skipped."""
        ...

    async def claimable(
        self, now: datetime, /, *, limit: int, agents: Collection[str] | None = None
    ) -> Sequence[str]:
        """Ids of free executions of these agents, or of all, in the order to claim them.

        First takeovers and those whose end is requested, which need no agent. Then by the number
        of running executions of the tenant plus the place in the tenant's queue, then by age."""
        ...

    async def is_work_waiting(self, now: datetime, /, *, agents: Collection[str]) -> bool:
        """Whether ``claimable`` would return anything for these agents; cheaper."""
        ...

    async def waiting_agents(self) -> Sequence[str]:
        """The agent types that pending executions need."""
        ...

    async def fence(self, execution: Execution, /) -> Fenced:
        """Lock the row and return it as it is now. Raises ``LostLeaseError`` unless this attempt
        runs the execution."""
        ...

    async def disown(self, execution: Execution, /) -> None:
        """Leave a running execution of that attempt without a worker, so that another takes it
        over. Does nothing if the attempt is not the newest."""
        ...

    async def held_by(self, worker_id: str, /) -> Sequence[HeldExecution]:
        """The running executions of a worker."""
        ...

    async def add_worker(self, worker: WorkerRecord, /) -> None:
        """Add it, or replace the record of the same id."""
        ...

    async def worker(self, worker_id: str, /) -> WorkerRecord | None:
        """One worker."""
        ...

    async def renew_worker(self, worker_id: str, lease_until: datetime, /) -> bool:
        """Extend the lease. Return whether the worker's record is still there."""
        ...

    async def remove_worker(self, worker_id: str, /) -> None:
        """Remove the record; what it runs may be taken over at once."""
        ...

    async def remove_expired_workers(self, now: datetime, /) -> Mapping[str, datetime]:
        """Remove workers whose lease ran out. Return when it did, by worker id."""
        ...

    async def database_time(self) -> datetime | None:
        """The database server's clock; None for a file."""
        ...
