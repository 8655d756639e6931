"""Whether the server can do its work: the database takes writes, and somebody takes
up executions."""

from datetime import datetime, timedelta

from msgspec import Struct

from stepwell.journal.status import ExecutionStatus
from stepwell.server.services import Services
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution

_LOOKED_AT = 100
OK = "ok"
NO_WORK_WAITS = "ok: no work waits"


class Check(Struct, frozen=True):
    """What was found about one thing, in words."""

    says: str = OK
    lacks: bool = False


async def readiness(services: Services) -> dict[str, Check]:
    """By name what was looked at. Checks of the app come last."""
    found: dict[str, Check] = {}
    try:
        fault = await services.write_probe.find_fault(services.store, services.clock)
        found["database"] = Check() if fault is None else Check(fault, lacks=True)
        found["worker"] = await services.store.read(lambda tx: _worker(tx, services))
        for name, check in services.checks.items():
            fault = await check()
            found[name] = Check() if fault is None else Check(fault, lacks=True)
    except StoreUnavailableError as error:
        found["database"] = Check(error.reason or "does not answer", lacks=True)
    return found


async def _worker(tx: Transaction, services: Services) -> Check:
    """A worker is missing if work waits too long while no execution is held by anybody."""
    now = services.clock.now()
    grace = timedelta(seconds=services.settings.worker_grace_seconds)
    free = await tx.claimable(now, limit=_LOOKED_AT)
    rows = [row for id in free if (row := await tx.execution(id)) is not None]
    if not any(now - _since(row) > grace for row in rows):
        # Without work nobody can tell whether there is a worker.
        return Check(OK if rows else NO_WORK_WAITS)
    abandoned = sum(row.status is ExecutionStatus.RUNNING for row in rows)
    running = (await tx.count_by_status()).get(ExecutionStatus.RUNNING, 0)
    if running > abandoned:
        return Check()
    return Check("nobody takes up executions; is a worker running?", lacks=True)


def _since(row: Execution) -> datetime:
    return row.updated_at
