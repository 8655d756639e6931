"""A worker in a process of its own.

It ends in good order at SIGTERM, and at once when its parent is gone, so that a killed test run
leaves none behind.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stepwell.ids import new_id
from stepwell.sessions.settings import SessionSettings
from stepwell.stores.database_url import open_store
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.work import Work
from stepwell.worker.worker import Worker
from tests.integration.worker.step_runner import StepRunner


async def main(
    url: str, witness: Path, settings: SessionSettings, on_ready: Callable[[], None]
) -> None:
    """Work until SIGTERM."""
    store, jobs = await open_store(url), PolledJobs()
    work = Work(
        store,
        StepRunner(store, jobs, witness),
        settings=settings,
        worker_id=f"worker-{new_id()}",
        jobs=jobs,
    )
    worker = Worker(store, work, settings)
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    running = asyncio.create_task(worker.run())
    on_ready()
    await asyncio.wait(
        {running, asyncio.create_task(ending.wait())}, return_when=asyncio.FIRST_COMPLETED
    )
    await worker.stop()
    await running
    await store.close()


def work(url: str, witness: Path, settings: dict[str, Any], parent: Connection) -> None:
    """The whole life of the process; says ``ready`` to its parent."""
    logging.basicConfig(level=logging.WARNING)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    asyncio.run(main(url, witness, SessionSettings(**settings), lambda: parent.send("ready")))


def _end_with(parent: Connection) -> None:
    with suppress(EOFError):
        parent.recv()
    os._exit(1)
