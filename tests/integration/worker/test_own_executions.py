"""A worker never takes its own executions from itself, and has one limit for all ways of taking."""

import asyncio
from datetime import datetime, timedelta

from stepwell.clock import SystemClock
from stepwell.journal.status import ExecutionStatus
from stepwell.worker.work import Work
from tests.integration.worker.bench_of_workers import Place, settings_of
from tests.integration.worker.step_runner import StepRunner


class Standstill(SystemClock):
    """A clock after a time in which the whole process stood still."""

    lost = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.lost)


def work_at(place: Place, clock: SystemClock, **settings: object) -> Work:
    return Work(
        place.store,
        StepRunner(place.store, place.jobs, place.witness),
        settings=settings_of(**settings),
        worker_id="worker-1",
        clock=clock,
        jobs=place.jobs,
    )


async def test_what_it_runs_is_not_taken_again_after_a_standstill(sqlite_place: Place) -> None:
    clock = Standstill()
    work = work_at(sqlite_place, clock)
    [id] = await sqlite_place.send(seconds=1.0)
    [first] = await work.take_some()
    await sqlite_place.noted_soon("step", id)
    clock.lost = 120.0  # its lease has run out, as far as the database knows

    assert await work.take_some() == []
    assert not await work.take(id)

    await first
    found = await sqlite_place.get(id)
    assert (found.status, found.attempt, found.crashes) == (ExecutionStatus.COMPLETED, 1, 0)


async def test_others_are_still_taken_after_a_standstill(sqlite_place: Place) -> None:
    clock = Standstill()
    work = work_at(sqlite_place, clock)
    await sqlite_place.send(seconds=0.2)
    [first] = await work.take_some()
    clock.lost = 120.0
    [other] = await sqlite_place.send()

    [second] = await work.take_some()
    await asyncio.gather(first, second)
    assert (await sqlite_place.get(other)).status is ExecutionStatus.COMPLETED


async def test_both_ways_of_taking_share_one_limit(sqlite_place: Place) -> None:
    work = work_at(sqlite_place, SystemClock(), concurrency=1)
    [first] = await sqlite_place.send(seconds=2.0)
    [second] = await sqlite_place.send()

    [taken] = await work.take_some()
    assert await work.take_some() == []
    waiting = asyncio.create_task(work.take(second))
    await asyncio.sleep(0.05)
    assert work.running == 1
    await taken
    assert await waiting
    assert work.running == 0
    rows = [await sqlite_place.get(id) for id in (first, second)]
    assert {row.status for row in rows} == {ExecutionStatus.COMPLETED}
