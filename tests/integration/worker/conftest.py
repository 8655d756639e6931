"""Places to work at, on both databases."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stepwell.ids import new_id
from tests.integration.sessions.databases import sqlite_url
from tests.integration.worker.bench_of_workers import Place, place_at
from tests.servers.postgres_server import database_of_its_own


@pytest.fixture
def worker_database(postgres_url: str, migrated_postgres: str) -> Iterator[str]:
    """The address of a database of a PostgreSQL server, with our tables and nothing in them."""
    with database_of_its_own(postgres_url, f"workers_{new_id()}", migrated_postgres) as url:
        yield url


@pytest.fixture
async def worker_file(tmp_path: Path) -> str:
    """The address of a SQLite file, whose tables need not be made again."""
    return await sqlite_url(tmp_path / "stepwell.db")


@pytest.fixture(params=["worker_file", "worker_database"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database, of each kind in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def place(url: str, tmp_path: Path) -> AsyncIterator[Place]:
    """A database of each kind in turn."""
    async with place_at(url, tmp_path) as place:
        yield place


@pytest.fixture
async def sqlite_place(worker_file: str, tmp_path: Path) -> AsyncIterator[Place]:
    """A SQLite file."""
    async with place_at(worker_file, tmp_path) as place:
        yield place


@pytest.fixture
async def postgres_place(worker_database: str, tmp_path: Path) -> AsyncIterator[Place]:
    """A database of a PostgreSQL server."""
    async with place_at(worker_database, tmp_path) as place:
        yield place
