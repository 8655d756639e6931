"""Which queue and which worker belong to a database; called by the app."""

from typing import Protocol

from stepwell.clock import Clock
from stepwell.sessions.ports import Jobs, Store
from stepwell.sessions.settings import SessionSettings
from stepwell.worker.embedded import EmbeddedWorker
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.work import Work


class Worker(Protocol):
    """Works on executions until it is stopped."""

    async def run(self) -> None:
        """Work until ``stop`` is called."""
        ...

    async def stop(self) -> None:
        """Take nothing more, hand back what runs, and return when that is done."""
        ...


def jobs_for(store_url: str) -> Jobs:
    """The queue that belongs to the database at that address."""
    if not _is_postgres(store_url):
        return PolledJobs()
    from stepwell.worker.procrastinate_jobs import ProcrastinateJobs

    return ProcrastinateJobs(store_url)


def worker_for(
    store_url: str, store: Store, work: Work, settings: SessionSettings, clock: Clock
) -> Worker:
    """The worker that belongs to the database at that address."""
    if not _is_postgres(store_url):
        return EmbeddedWorker(store, work, settings)
    from stepwell.worker.procrastinate_worker import ProcrastinateWorker

    return ProcrastinateWorker(store_url, store, work, settings, clock)


def _is_postgres(store_url: str) -> bool:
    return store_url.startswith(("postgres:", "postgresql:", "postgresql+"))
