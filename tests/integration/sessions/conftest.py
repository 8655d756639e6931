"""Databases for the tests of sessions. What a test says of SQL it tries on both kinds (`desk`), the
rest on SQLite alone (`sqlite_desk`)."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stepwell.ids import new_id
from tests.integration.sessions.front_desk import FrontDesk, desk_at
from tests.servers.postgres_server import database_of_its_own


@pytest.fixture
def postgres_database(postgres_url: str, migrated_postgres: str) -> Iterator[str]:
    """The URL of a PostgreSQL database with our tables and nothing in them."""
    with database_of_its_own(postgres_url, f"sessions_{new_id()}", migrated_postgres) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """A fresh database of either kind."""
    if request.param == "sqlite":
        return tmp_path / "stepwell.db"
    return request.getfixturevalue("postgres_database")


@pytest.fixture
async def desk(database: str | Path) -> AsyncIterator[FrontDesk]:
    """A desk over each database in turn."""
    async with desk_at(database) as desk:
        yield desk


@pytest.fixture
async def sqlite_desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    """A desk over a SQLite file."""
    async with desk_at(tmp_path / "a.db") as desk:
        yield desk
