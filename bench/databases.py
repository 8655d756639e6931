"""The databases that a bench runs on: files, and a PostgreSQL of its own that syncs to disk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from stepwell.stores.opening import open_store
from tests.servers.postgres_server import PostgresServer, postgres_programs, postgres_running

NewDatabase = Callable[[str], str]


def sqlite_databases(folder: Path) -> NewDatabase:
    """Makes the address of a file from a name."""
    return lambda name: f"sqlite:///{folder / name}.db"


@contextmanager
def postgres_databases() -> Iterator[NewDatabase | None]:
    """Makes a database from a name, for the length of a block; None where there is no server."""
    programs = postgres_programs()
    if programs is None:
        yield None
        return
    with postgres_running(programs, fsync="on") as server:
        yield lambda name: _new_database(server, name)


def _new_database(server: PostgresServer, name: str) -> str:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.url.rsplit("/", 1)[0] + f"/{name}"


def transactions(url: str) -> int:
    """How many transactions a PostgreSQL database has seen, reads and NOTIFY included."""
    name = url.rsplit("/", 1)[1]
    with psycopg.connect(url.rsplit("/", 1)[0] + "/postgres", autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s", (name,)
        ).fetchone()
    return 0 if row is None else int(row[0])


async def make_tables(url: str) -> str:
    """Make the tables, so that several processes can open it; its address."""
    await (await open_store(url)).close()
    return url
