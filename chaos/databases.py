"""The database of a run, and its workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from chaos.settings import ChaosSettings, Place
from stepwell.clock import SystemClock
from stepwell.sessions.attempt.runner import Runner
from stepwell.sessions.ports import Store
from stepwell.stores.database_url import open_store
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.work import Work
from stepwell.worker.worker import Worker


async def open_existing(place: Place) -> Store:
    """The store, whose tables are there already."""
    return await open_store(place.url, migrate=False, **bus_options(place))


def bus_options(place: Place) -> dict[str, Any]:
    """What names the bus, where it is not the database's own."""
    return {} if place.bus_url is None else {"bus_url": place.bus_url}


def worker_for(settings: ChaosSettings, store: Store, runner: Runner, name: str) -> Worker:
    """The worker of that name."""
    wanted = settings.session_settings
    work = Work(
        store, runner, settings=wanted, worker_id=name, clock=SystemClock(), jobs=PolledJobs()
    )
    return Worker(store, work, wanted)


class Database(Protocol):
    """A running database of a run."""

    @property
    def url(self) -> str:
        """Where it is."""
        ...

    def restart(self, *, immediate: bool) -> None:
        """Restart it in the middle of everything; ``immediate`` is a crash of the server."""
        ...


class SqliteFile:
    """A file: there is no server to restart."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'chaos.db'}"

    def restart(self, *, immediate: bool) -> None:
        """Nothing to do."""


class GivenPostgres:
    """A server of the user's, which is not ours to restart."""

    def __init__(self, url: str) -> None:
        self.url = url

    def restart(self, *, immediate: bool) -> None:
        """Nothing to do."""


@contextmanager
def running_database(kind: str, folder: Path, postgres_url: str | None) -> Iterator[Database]:
    """The database of a run, for the length of a block."""
    if kind == "sqlite":
        yield SqliteFile(folder)
    elif postgres_url:
        yield GivenPostgres(postgres_url)
    else:
        from chaos.postgres import running_postgres

        with running_postgres() as server:
            yield server
