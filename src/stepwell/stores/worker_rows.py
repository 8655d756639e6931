"""Workers and their leases."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import and_, column, delete, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from stepwell.sessions.records import WorkerRecord
from stepwell.stores import tables as t
from stepwell.stores.rows import KEY, Rows, by_id, column_parameter, records_of
from stepwell.stores.types import POSTGRESQL, SQLITE

_C = t.workers.c
_INSERTS = {SQLITE: sqlite.insert(t.workers), POSTGRESQL: postgresql.insert(t.workers)}
_ADD = {
    dialect: insert.on_conflict_do_update(
        index_elements=["id"],
        set_={each.name: insert.excluded[each.name] for each in _C if each.name != "id"},
    )
    for dialect, insert in _INSERTS.items()
}
_WORKER = records_of(t.workers).where(by_id(t.workers))
_RENEW = (
    update(t.workers)
    .where(by_id(t.workers))
    .values(lease_until=column_parameter(t.workers, "lease_until"))
    .returning(_C.id)
)
_REMOVE = delete(t.workers).where(by_id(t.workers))
_IS_EXPIRED = _C.lease_until < column_parameter(t.workers, "lease_until", "now")
# Two that clean up at once would wait for each other.
_FREE_TO_REMOVE = select(_C.id).where(_IS_EXPIRED).with_for_update(skip_locked=True)
_REMOVE_EXPIRED = (
    delete(t.workers)
    .where(and_(_C.id.in_(_FREE_TO_REMOVE), _IS_EXPIRED))
    .returning(_C.id, _C.lease_until)
)
_DATABASE_TIME = text("SELECT clock_timestamp()").columns(column("now"))


class WorkerRowsMixin(Rows):
    """See ``sessions.claim_ports.ClaimRows``."""

    async def add_worker(self, worker: WorkerRecord, /) -> None:
        """Add it, or replace the record of the same id."""
        await self._lane.rows(_ADD[self._lane.dialect], self._codecs.worker.values(worker))

    async def worker(self, worker_id: str, /) -> WorkerRecord | None:
        """One worker."""
        return await self._one(self._codecs.worker, _WORKER, **{KEY: worker_id})

    async def renew_worker(self, worker_id: str, lease_until: datetime, /) -> bool:
        """Extend the lease. Return whether the worker's record is still there."""
        return bool(await self._run(_RENEW, lease_until=lease_until, **{KEY: worker_id}))

    async def remove_worker(self, worker_id: str, /) -> None:
        """Remove the record; what it runs may be taken over at once."""
        await self._run(_REMOVE, **{KEY: worker_id})

    async def remove_expired_workers(self, now: datetime, /) -> Mapping[str, datetime]:
        """Remove workers whose lease ran out. Return when it did, by worker id."""
        rows = await self._run(_REMOVE_EXPIRED, now=now)
        return {id: self._codecs.time(lease_until) for id, lease_until in rows}

    async def database_time(self) -> datetime | None:
        """The database server's clock; None for a file."""
        if self._lane.dialect == SQLITE:
            return None
        return self._codecs.time((await self._run(_DATABASE_TIME))[0][0])
