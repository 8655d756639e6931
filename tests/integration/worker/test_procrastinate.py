"""The queue on PostgreSQL: jobs in our transaction, the sweeper, and a queue that goes away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from stepwell.clock import SystemClock
from stepwell.ids import new_id
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import ExecutionStatus
from stepwell.worker.procrastinate_jobs import (
    QUEUE,
    TASK,
    ProcrastinateJobs,
    conninfo,
    ensure_tables,
    queueing_lock,
)
from stepwell.worker.procrastinate_worker import ProcrastinateWorker
from stepwell.worker.sweeping import Sweeper
from stepwell.worker.work import Work
from tests.integration.worker.bench_of_workers import CLOCK, Place, settings_of
from tests.integration.worker.step_runner import StepRunner


async def asked(place: Place, query: str, *values: object) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(
        conninfo(place.url), autocommit=True
    ) as connection:
        found = await connection.execute(query, values or None)  # type: ignore[arg-type]
        return await found.fetchall() if found.description else []


async def jobs_of(place: Place) -> list[tuple[str, str]]:
    """Execution and status of every job."""
    return await asked(
        place, "SELECT args ->> 'execution_id', status::text FROM procrastinate_jobs ORDER BY id"
    )


@asynccontextmanager
async def working(place: Place, **settings: object) -> AsyncIterator[ProcrastinateWorker]:
    chosen = settings_of(**settings)
    runner = StepRunner(place.store, place.jobs, place.witness)
    work = Work(place.store, runner, settings=chosen, worker_id=new_id(), jobs=place.jobs)
    worker = ProcrastinateWorker(place.url, place.store, work, chosen, CLOCK)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.stop()
        await running


async def test_a_send_makes_one_job_for_the_head(postgres_place: Place) -> None:
    first, *_ = await postgres_place.send(3)

    assert await jobs_of(postgres_place) == [(first, "todo")]
    [row] = await asked(
        postgres_place, "SELECT queue_name, task_name, queueing_lock FROM procrastinate_jobs"
    )
    assert row == (QUEUE, TASK, queueing_lock(first))


async def test_a_rollback_leaves_neither_row_nor_job(postgres_place: Place) -> None:
    await ensure_tables(conninfo(postgres_place.url))
    [kept] = await postgres_place.send()
    other = new_id()

    class Refused(Exception):
        pass

    async def begin(tx: Transaction) -> None:
        found = await tx.execution(kept)
        assert found is not None
        await tx.add_execution(replace(found, id=other))
        await postgres_place.jobs.enqueue(tx, other)
        raise Refused

    with pytest.raises(Refused):
        await postgres_place.store.write(begin, name="send")

    assert await jobs_of(postgres_place) == [(kept, "todo")]
    assert await postgres_place.store.read(lambda tx: tx.execution(other)) is None


async def test_doubles_do_not_pile_up_and_do_not_break_the_transaction(
    postgres_place: Place,
) -> None:
    [id] = await postgres_place.send()

    async def again(tx: Transaction) -> None:
        await postgres_place.jobs.enqueue(tx, id)
        await postgres_place.jobs.enqueue(tx, id)
        assert await tx.execution(id) is not None

    await postgres_place.store.write(again, name="send")

    assert await jobs_of(postgres_place) == [(id, "todo")]


async def test_many_who_begin_at_once_make_the_tables_once(worker_database: str) -> None:
    await asyncio.gather(*(ProcrastinateJobs(worker_database).ensure_tables() for _ in range(8)))
    async with await psycopg.AsyncConnection.connect(worker_database) as connection:
        found = await connection.execute("SELECT count(*) FROM procrastinate_jobs")
        assert await found.fetchone() == (0,)


async def test_a_session_runs_through_by_the_chain_and_leaves_no_jobs(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sweep(_: Sweeper) -> int:
        return 0

    monkeypatch.setattr(Sweeper, "sweep", sweep)
    # Procrastinate forgets a notification that comes while it fetches, and looks again after that.
    async with working(postgres_place, poll_seconds=0.5):
        ids = await postgres_place.send(10)
        rows = await postgres_place.all_finished(ids)

    assert {row.status for row in rows} == {ExecutionStatus.COMPLETED}
    finished = [n.id for n in postgres_place.noted("finished")]
    assert finished == ids
    assert await jobs_of(postgres_place) == []


async def test_an_execution_that_lost_its_job_is_found(postgres_place: Place) -> None:
    [id] = await postgres_place.send()
    await asked(postgres_place, "DELETE FROM procrastinate_jobs")

    async with working(postgres_place):
        await postgres_place.all_over([id])


async def test_the_sweeper_puts_what_waited_before_the_others(postgres_place: Place) -> None:
    lost, waiting = [(await postgres_place.send())[0] for _ in range(2)]
    await asked(
        postgres_place, "DELETE FROM procrastinate_jobs WHERE args ->> 'execution_id' = %s", lost
    )
    sweeper = Sweeper(postgres_place.store, settings_of(), CLOCK)

    assert await sweeper.sweep() == 1
    assert await sweeper.sweep() == 0

    assert await jobs_of(postgres_place) == [(waiting, "todo"), (lost, "todo")]
    found = await asked(
        postgres_place,
        "SELECT args ->> 'execution_id' FROM procrastinate_jobs ORDER BY priority DESC, id",
    )
    assert found == [(lost,), (waiting,)]


async def test_jobs_of_dead_workers_and_dead_workers_are_cleared_away(
    postgres_place: Place,
) -> None:
    [id] = await postgres_place.send()
    await asked(
        postgres_place,
        "WITH dead AS (INSERT INTO procrastinate_workers (last_heartbeat) "
        "VALUES (now() - interval '1 hour') RETURNING id) "
        "UPDATE procrastinate_jobs SET status = 'doing', worker_id = (SELECT id FROM dead)",
    )

    await Sweeper(postgres_place.store, settings_of(), CLOCK).sweep()

    assert await jobs_of(postgres_place) == [(id, "todo")]
    assert await asked(postgres_place, "SELECT id FROM procrastinate_workers") == []


async def test_two_who_sweep_at_once_make_one_job(postgres_place: Place) -> None:
    ids = [(await postgres_place.send())[0] for _ in range(20)]
    await asked(postgres_place, "DELETE FROM procrastinate_jobs")

    await asyncio.gather(
        *(Sweeper(postgres_place.store, settings_of(), CLOCK).sweep() for _ in range(4))
    )

    assert sorted(await jobs_of(postgres_place)) == sorted((id, "todo") for id in ids)


async def test_a_worker_whose_connections_are_cut_goes_on(postgres_place: Place) -> None:
    async with working(postgres_place):
        [long] = await postgres_place.send(steps=4, seconds=0.4)
        await postgres_place.noted_soon("step", long)
        await asked(
            postgres_place,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        [after] = await postgres_place.send()
        await postgres_place.all_over([after])
        [row] = await postgres_place.all_over([long])

    # What ran beside the queue was not touched by its end.
    assert (row.status, row.attempt) == (ExecutionStatus.COMPLETED, 1)


async def test_a_worker_that_procrastinate_holds_for_dead_goes_on(postgres_place: Place) -> None:
    async with working(postgres_place):
        [first] = await postgres_place.send()
        await postgres_place.all_over([first])
        await asked(postgres_place, "DELETE FROM procrastinate_workers")
        [second] = await postgres_place.send()
        await postgres_place.all_over([second])


@pytest.mark.parametrize(("off", "told"), [(0.0, 0), (60.0, 1), (-60.0, 1)])
async def test_a_clock_that_is_not_the_databases_is_told(
    postgres_place: Place, caplog: pytest.LogCaptureFixture, off: float, told: int
) -> None:
    class Off(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(seconds=off)

    await ensure_tables(conninfo(postgres_place.url))
    await Sweeper(postgres_place.store, settings_of(lease_seconds=30.0), Off()).sweep()
    found = [it for it in caplog.messages if "the clock of this machine is 60.0 s" in it]
    assert len(found) == told
