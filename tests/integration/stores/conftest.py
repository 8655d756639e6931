"""Databases with nothing in them: copies of one that was migrated once, or one that was emptied, so
that a test starts at once.
"""

import shutil
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from stepwell.sessions.ports import Store
from stepwell.stores.database_url import open_store
from tests.integration.stores.databases import run_sql
from tests.servers.postgres_server import database_of_its_own

_numbers = count()


@pytest.fixture
def sqlite_file(migrated_sqlite: Path, tmp_path: Path) -> Path:
    """A file with our tables and nothing in them."""
    return Path(shutil.copy(migrated_sqlite, tmp_path / "stepwell.db"))


@pytest.fixture(scope="session")
def shared_postgres(postgres_url: str, migrated_postgres: str) -> Iterator[str]:
    """The URL of the database that most tests use, one after the other."""
    with database_of_its_own(postgres_url, "stepwell_shared", migrated_postgres) as url:
        yield url


@pytest.fixture
def postgres_database(shared_postgres: str) -> str:
    """The URL of a database with our tables and nothing in them."""
    # Quicker than a new database by far; all else belongs to one of these.
    for table in ("agent_sessions", "agent_executions", "agent_api_keys", "agent_workers"):
        run_sql(shared_postgres, f"DELETE FROM {table}")
    return shared_postgres


@pytest.fixture
def own_postgres(postgres_url: str, migrated_postgres: str) -> Iterator[str]:
    """The same for a test that changes tables, or whose writers may outlive it."""
    name = f"stepwell_test_{next(_numbers)}"
    with database_of_its_own(postgres_url, name, migrated_postgres) as url:
        yield url


@pytest.fixture
def empty_postgres(postgres_url: str) -> Iterator[str]:
    """The URL of a database without any table."""
    with database_of_its_own(postgres_url, f"stepwell_empty_{next(_numbers)}") as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('sqlite_file')}"
    return request.getfixturevalue("postgres_database")


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    """A store on it."""
    opened = await open_store(database)
    yield opened
    await opened.close()


@pytest.fixture
async def second_store(database: str) -> AsyncIterator[Store]:
    """Another one on the same, as a second process has it."""
    opened = await open_store(database)
    yield opened
    await opened.close()
