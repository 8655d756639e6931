"""The worker for PostgreSQL: Procrastinate fetches jobs, ``Work`` runs the executions they name.

Procrastinate only delivers. It ends when its database is away for a moment, and it would cancel
what it runs; so the executions run beside it, and a new one is started in its place.
"""

import asyncio
import logging

import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ProcrastinateException

from stepwell.clock import Clock, SystemClock
from stepwell.sessions.ports import Store
from stepwell.sessions.settings import SessionSettings
from stepwell.worker.procrastinate_jobs import QUEUE, TASK, conninfo, ensure_tables
from stepwell.worker.sweeping import Sweeper
from stepwell.worker.work import Work

logger = logging.getLogger("stepwell.worker")

_CONNECTIONS = 4
_CONNECT_SECONDS = 5.0


class ProcrastinateWorker:
    """Runs executions that jobs name, and sweeps."""

    def __init__(
        self,
        store_url: str,
        store: Store,
        work: Work,
        settings: SessionSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._conninfo = conninfo(store_url)
        self._work = work
        self._settings = settings or SessionSettings()
        self._clock = clock or SystemClock()
        self._sweeper = Sweeper(store, self._settings, self._clock, work.claimable)
        self._taken: set[asyncio.Task[bool]] = set()
        self._tables_there = asyncio.Event()
        self._stopping = asyncio.Event()
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    async def run(self) -> None:
        """Work until ``stop`` is called; then running executions have been handed back."""
        self._at_rest.clear()
        tasks = [
            asyncio.create_task(self._deliver(), name="procrastinate"),
            asyncio.create_task(self._sweep(), name="sweeper"),
        ]
        stopping = asyncio.create_task(self._stopping.wait(), name="wait for the stop")
        try:
            done, _ = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            await _cancelled(*tasks)
            for task in done - {stopping}:
                task.result()
            await self._work.shut_down()
        finally:
            self._stopping.set()
            await _cancelled(*tasks, stopping, *self._taken)
            self._at_rest.set()

    async def stop(self) -> None:
        """Fetch nothing more, hand back what runs, and return when that is done."""
        self._stopping.set()
        await self._at_rest.wait()

    async def _deliver(self) -> None:
        """Procrastinate's worker, and a new one whenever it gave up.

        Not for ever: one that is cancelled while its database is away raises something else.
        """
        while not self._stopping.is_set():
            try:
                await ensure_tables(self._conninfo)
                self._tables_there.set()
                await self._fetch()
            except (ProcrastinateException, psycopg.Error) as error:
                logger.warning("the queue is away: %s", error)
            await asyncio.sleep(self._settings.poll_seconds)

    async def _fetch(self) -> None:
        app = App(
            connector=PsycopgConnector(
                conninfo=self._conninfo,
                min_size=1,
                max_size=_CONNECTIONS,
                timeout=_CONNECT_SECONDS,
            )
        )
        app.task(name=TASK, queue=QUEUE)(self._execute)
        async with app.open_async():
            await app.run_worker_async(
                queues=[QUEUE],
                name=self._work.worker_id,
                concurrency=self._settings.concurrency,
                fetch_job_polling_interval=self._settings.poll_seconds,
                # Executions are cancelled through their rows.
                abort_job_polling_interval=3600.0,
                # It must not wait for executions: they are handed back without it.
                shutdown_graceful_timeout=0,
                delete_jobs="always",
                install_signal_handlers=False,
                update_heartbeat_interval=self._settings.lease_seconds,
                stalled_worker_timeout=self._settings.lease_seconds * 10,
            )

    async def _execute(self, execution_id: str) -> None:
        """The task behind a job. When the delivery ends, the execution goes on."""
        taken = asyncio.create_task(self._work.take(execution_id), name=f"take {execution_id}")
        self._taken.add(taken)
        taken.add_done_callback(self._taken.discard)
        await asyncio.shield(taken)

    async def _sweep(self) -> None:
        await self._tables_there.wait()
        while True:
            await self._sweeper.sweep()
            await asyncio.sleep(self._sweeper.every_seconds)


async def _cancelled(*tasks: asyncio.Task[None] | asyncio.Task[bool]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
