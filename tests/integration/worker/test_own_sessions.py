"""A worker of some sessions leaves everything else alone, whatever state it is in."""

import asyncio
from collections.abc import Collection
from datetime import timedelta

from msgspec.structs import replace

from stepwell.ids import new_id
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import WorkerRecord
from stepwell.worker.work import Work
from stepwell.worker.worker import Worker
from tests.integration.worker.bench_of_workers import CLOCK, Place, settings_of
from tests.integration.worker.step_runner import StepRunner


def work_at(place: Place, sessions: Collection[str], **settings: object) -> Work:
    return Work(
        place.store,
        StepRunner(place.store, place.jobs, place.witness),
        settings=settings_of(**settings),
        worker_id="worker-1",
        jobs=place.jobs,
        sessions=sessions,
    )


async def test_only_executions_of_its_sessions_are_taken(place: Place) -> None:
    own_session = new_id()
    others = [(await place.send())[0] for _ in range(3)]
    own = await place.send(2, session=own_session)
    work = work_at(place, {own_session}, concurrency=5)

    assert not await work.take(others[0])
    for _ in own:  # the second waits for the first
        await asyncio.gather(*await work.take_some())
    assert await work.take_some() == []

    assert [(await place.get(id)).status for id in own] == [ExecutionStatus.COMPLETED] * 2
    assert [(await place.get(id)).attempt for id in others] == [0, 0, 0]


async def test_neither_leases_that_ran_out_nor_wishes_to_end_are_its_business(
    place: Place,
) -> None:
    [dead] = await place.send()
    [unwanted] = await place.send()
    left = {
        dead: {"status": ExecutionStatus.RUNNING, "worker_id": "gone"},
        unwanted: {"cancel_requested": "enough"},
    }
    for id, changes in left.items():
        row = replace(await place.get(id), **changes)
        await place.store.write(lambda tx, row=row: tx.save_execution(row), name="test")
    work = work_at(place, {new_id()})

    assert await work.take_some() == []
    assert [await work.take(id) for id in left] == [False, False]
    assert [(await place.get(id)).attempt for id in left] == [0, 0]


async def test_its_own_is_taken_up_after_a_worker_that_died(sqlite_place: Place) -> None:
    session = new_id()
    [id] = await sqlite_place.send(session=session)
    row = await sqlite_place.get(id)
    dead = replace(row, status=ExecutionStatus.RUNNING, worker_id="gone")
    await sqlite_place.store.write(lambda tx: tx.save_execution(dead), name="test")

    [taken] = await work_at(sqlite_place, {session}).take_some()
    await taken
    assert (await sqlite_place.get(id)).status is ExecutionStatus.COMPLETED


async def test_one_that_has_a_worker_or_waits_for_a_person_leads_to_no_write(
    sqlite_place: Place,
) -> None:
    session = new_id()
    [id] = await sqlite_place.send(session=session)
    soon = CLOCK.now() + timedelta(seconds=60)
    other = WorkerRecord(id="other", lease_until=soon, started_at=soon)
    await sqlite_place.store.write(lambda tx: tx.add_worker(other), name="test")
    writes: list[str] = []
    write = sqlite_place.store.write

    async def noted(work: object, *, name: str) -> object:
        writes.append(name)
        return await write(work, name=name)  # type: ignore[arg-type]

    work = work_at(sqlite_place, {session})
    for changes in (
        {"status": ExecutionStatus.RUNNING, "worker_id": "other"},
        {"status": ExecutionStatus.PAUSED, "worker_id": None},
    ):
        row = replace(await sqlite_place.get(id), **changes)
        await write(lambda tx, row=row: tx.save_execution(row), name="test")
        sqlite_place.store.write = noted  # type: ignore[method-assign,assignment]
        assert await work.take_some() == []
        del sqlite_place.store.write
    assert writes == []


async def test_a_session_that_comes_later_is_worked_on_as_well(place: Place) -> None:
    sessions: set[str] = set()
    worker = Worker(place.store, work_at(place, sessions), settings_of())
    running = asyncio.create_task(worker.run())
    session = new_id()
    [id] = await place.send(session=session)
    await asyncio.sleep(0.1)
    assert (await place.get(id)).attempt == 0
    sessions.add(session)
    [row] = await place.all_over([id])
    await worker.stop()
    await running
    assert row.status is ExecutionStatus.COMPLETED
