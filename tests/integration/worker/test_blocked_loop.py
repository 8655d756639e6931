"""A worker whose event loop is blocked for longer than its lease keeps its executions."""

import asyncio
import logging

import pytest

from stepwell.journal.status import ExecutionStatus
from tests.integration.worker.bench_of_workers import Place, workers
from tests.integration.worker.test_work import stolen, work_at

LEASE = {"lease_seconds": 4.0, "heartbeat_seconds": 1.0}
BLOCKED_SECONDS = 10.0


@pytest.mark.parametrize("how", ["blocks", "blocks_in_write"])
async def test_an_execution_of_a_blocked_worker_is_not_taken_over(place: Place, how: str) -> None:
    with workers(place, 2, **LEASE) as both:
        for worker in both:
            await worker.ready()
        [id] = await place.send(steps=2, seconds=0.1, **{how: BLOCKED_SECONDS})
        await place.noted_soon("blocked", id, seconds=60)
        [found] = await place.all_over([id], seconds=60)

    assert (found.status, found.attempt, found.crashes) == (ExecutionStatus.COMPLETED, 1, 0)
    assert len(place.noted("claim", id)) == 1


async def test_a_blocked_loop_is_logged_with_its_stack(
    sqlite_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    [id] = await sqlite_place.send(steps=1, blocks=5.0)

    assert await work_at(sqlite_place, lease_seconds=4.0, heartbeat_seconds=1.0).take(id)

    logged = [each for each in caplog.records if "event loop has been blocked" in each.getMessage()]
    assert [each.levelno for each in logged] == [logging.ERROR]
    assert "in _block" in logged[0].getMessage()


async def test_a_lease_that_is_lost_while_the_loop_is_blocked_stops_the_run(
    sqlite_place: Place,
) -> None:
    [id] = await sqlite_place.send(steps=1, seconds=60, blocks=4.0)
    work = work_at(sqlite_place, lease_seconds=3.0, heartbeat_seconds=1.0)
    await sqlite_place.store.read(lambda tx: tx.execution(id))
    taking = asyncio.create_task(work.take(id))
    await sqlite_place.noted_soon("blocked", id, seconds=30)

    await stolen(sqlite_place, id)
    async with asyncio.timeout(30):
        await taking

    found = await sqlite_place.get(id)
    assert (found.status, found.worker_id) == (ExecutionStatus.RUNNING, "thief")
