"""Whether the server can do its work: the database answers, and somebody takes up executions."""

from datetime import datetime, timedelta

from stepwell.server.services import Services
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, ExecutionStatus

_LOOKED_AT = 100


async def readiness(services: Services) -> dict[str, str | None]:
    """By name what is lacking, None where nothing is. Checks of the app come last."""
    found: dict[str, str | None] = {"database": None}
    try:
        found["worker"] = await services.store.read(lambda tx: _worker(tx, services))
        for name, check in services.checks.items():
            found[name] = await check()
    except StoreUnavailableError:
        found["database"] = "does not answer"
    return found


async def _worker(tx: Transaction, services: Services) -> str | None:
    """A worker is missing if work waits too long while no execution is held by anybody."""
    now = services.clock.now()
    grace = timedelta(seconds=services.settings.worker_grace_seconds)
    free = await tx.claimable(now, limit=_LOOKED_AT)
    rows = [row for id in free if (row := await tx.execution(id)) is not None]
    if not any(now - _since(row) > grace for row in rows):
        return None
    abandoned = sum(row.status is ExecutionStatus.RUNNING for row in rows)
    running = (await tx.count_by_status()).get(ExecutionStatus.RUNNING, 0)
    return None if running > abandoned else "nobody takes up executions; is a worker running?"


def _since(row: Execution) -> datetime:
    return row.lease_until or row.updated_at
