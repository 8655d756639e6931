"""The databases that a bench runs on: files, and a PostgreSQL of its own that syncs to disk."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from stepwell.stores.database_url import open_store
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


def postgres_cpu(url: str) -> float:
    """CPU seconds of all processes of a PostgreSQL server so far, ended ones included."""
    with psycopg.connect(url, autocommit=True) as connection:
        backend = connection.info.backend_pid
    server = int(_stat(backend)[1])
    own = sum(int(ticks) for ticks in _stat(server)[11:15])
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    for child in children:
        with suppress(FileNotFoundError, ProcessLookupError):
            own += sum(int(ticks) for ticks in _stat(int(child))[11:13])
    return own / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/pid/stat behind the name: state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


async def make_tables(url: str) -> str:
    """Make the tables, so that several processes can open it; its address."""
    await (await open_store(url)).close()
    return url
