"""Readiness: whether the database accepts writes and a worker claims executions."""

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


class ReadinessCheck(Struct, frozen=True):
    """The result of one readiness check, in words."""

    message: str = OK
    is_failing: bool = False


async def readiness(services: Services) -> dict[str, ReadinessCheck]:
    """Return the results of all checks by name; those of the app come last."""
    found: dict[str, ReadinessCheck] = {}
    try:
        fault = await services.write_probe.find_fault(services.store, services.clock)
        found["database"] = _result(fault)
        found["worker"] = await services.store.read(lambda tx: _worker(tx, services))
        for name, check in services.checks.items():
            fault = await check()
            found[name] = _result(fault)
    except StoreUnavailableError as error:
        found["database"] = ReadinessCheck(error.reason or "does not answer", is_failing=True)
    return found


def _result(fault: str | None) -> ReadinessCheck:
    return ReadinessCheck() if fault is None else ReadinessCheck(fault, is_failing=True)


async def _worker(tx: Transaction, services: Services) -> ReadinessCheck:
    """Check for a worker: it is missing if work waits too long while nobody holds an execution."""
    now = services.clock.now()
    grace = timedelta(seconds=services.settings.worker_grace_seconds)
    free = await tx.claimable(now, limit=_LOOKED_AT)
    rows = [row for id in free if (row := await tx.execution(id)) is not None]
    if not any(now - _since(row) > grace for row in rows):
        # Without work it is unknown whether there is a worker.
        return ReadinessCheck(OK if rows else NO_WORK_WAITS)
    abandoned = sum(row.status is ExecutionStatus.RUNNING for row in rows)
    running = (await tx.count_by_status()).get(ExecutionStatus.RUNNING, 0)
    if running > abandoned:
        return ReadinessCheck()
    return ReadinessCheck("nobody claims executions; is a worker running?", is_failing=True)


def _since(row: Execution) -> datetime:
    return row.updated_at
