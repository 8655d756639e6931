"""A worker leaves executions of agents that it does not have for others, and says so once."""

import asyncio
import logging

import pytest
from msgspec.structs import replace

from stepwell.ids import new_id
from stepwell.journal.status import ExecutionStatus
from stepwell.worker.work import Work
from stepwell.worker.worker import Worker
from tests.integration.worker.bench_of_workers import Place, settings_of
from tests.integration.worker.step_runner import StepRunner


class Stranger(StepRunner):
    """Has the one agent that the others do not."""

    @property
    def agents(self) -> tuple[str, ...]:
        return ("stranger",)


def work_at(place: Place, kind: type[StepRunner] = StepRunner, **settings: object) -> Work:
    runner = kind(place.store, place.jobs, place.witness)
    chosen = settings_of(**settings)
    return Work(place.store, runner, settings=chosen, worker_id=new_id(), jobs=place.jobs)


async def test_an_unknown_agent_is_left_alone_with_one_warning(
    sqlite_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = [(await sqlite_place.send(agent="stranger"))[0] for _ in range(3)]
    work = work_at(sqlite_place)

    with caplog.at_level(logging.WARNING, "stepwell.worker"):
        assert not await work.take(foreign[0])
        assert await work.take_some() == []
        assert await work.take_some() == []

    rows = [await sqlite_place.get(id) for id in foreign]
    assert {(row.status, row.attempt) for row in rows} == {(ExecutionStatus.PENDING, 0)}
    assert [r.getMessage().count("no agent 'stranger'") for r in caplog.records] == [1]


async def test_foreign_executions_do_not_stand_in_the_way_of_own_ones(sqlite_place: Place) -> None:
    for _ in range(7):
        await sqlite_place.send(agent="stranger")
    own = [(await sqlite_place.send())[0] for _ in range(4)]

    taken = await work_at(sqlite_place, concurrency=3).take_some()

    assert len(taken) == 3
    await asyncio.gather(*taken)
    assert [(await sqlite_place.get(id)).attempt for id in own] == [1, 1, 1, 0]


async def test_the_worker_that_has_the_agent_takes_it(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(agent="stranger")
    workers = [
        Worker(sqlite_place.store, work_at(sqlite_place, kind), settings_of())
        for kind in (StepRunner, Stranger)
    ]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    [row] = await sqlite_place.all_over([id])
    for worker, task in zip(workers, running, strict=True):
        await worker.stop()
        await task
    assert (row.status, row.attempt) == (ExecutionStatus.COMPLETED, 1)


async def test_one_that_is_to_end_needs_no_agent(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(agent="stranger", seconds=30)
    row = await sqlite_place.get(id)
    await sqlite_place.store.write(
        lambda tx: tx.save_execution(replace(row, cancel_requested="enough")), name="test"
    )
    assert await work_at(sqlite_place).take(id)
    assert (await sqlite_place.get(id)).status is ExecutionStatus.CANCELLED
