"""A worker whose connections are dropped without a word notices, connects anew and goes on."""

import asyncio
from pathlib import Path

from sqlalchemy import make_url

from stepwell.clock import SystemClock
from stepwell.ids import new_id
from stepwell.journal.status import ExecutionStatus
from stepwell.worker.work import Work
from stepwell.worker.worker import Worker
from tests.integration.worker.bench_of_workers import Place, place_at, settings_of
from tests.integration.worker.step_runner import StepRunner
from tests.servers.silent_proxy import silent_proxy

NOTICED_SECONDS = 15.0
SLACK = 15.0
"""For a machine that is busy; without limits it takes minutes."""


async def test_a_worker_recovers_from_connections_that_went_silent(
    postgres_place: Place, tmp_path: Path
) -> None:
    direct = make_url(postgres_place.url)
    async with silent_proxy(direct.port or 5432) as proxy:
        through = direct.set(port=proxy.port).render_as_string(hide_password=False)
        async with place_at(through, tmp_path) as place:
            settings = settings_of(lease_seconds=3.0, heartbeat_seconds=1.0)
            runner = StepRunner(place.store, place.jobs, place.witness)
            work = Work(place.store, runner, settings=settings, worker_id=new_id())
            worker = Worker(place.store, work, settings)
            running = asyncio.create_task(worker.run())
            [first] = await postgres_place.send()
            await postgres_place.all_over([first])
            [long] = await postgres_place.send(steps=1, seconds=4.0, seconds_again=0.0)
            await place.noted_soon("step", long)

            assert proxy.drop_flows() > 0
            clock = SystemClock()
            began = clock.monotonic()
            [second] = await postgres_place.send()
            rows = await postgres_place.all_over([second, long])
            took = clock.monotonic() - began
            await worker.stop()
            await running

    assert {row.status for row in rows} == {ExecutionStatus.COMPLETED}
    print(f"went on after {took:.1f} s")
    assert took < NOTICED_SECONDS + SLACK
