"""The app server: in this process without a network (``served``), or on a socket (``address``)."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.integration.server.serving import DATABASE, Address, Served, listening, serving


@pytest.fixture
def folder(tmp_path: Path, migrated_sqlite: Path) -> Path:
    """A folder with a database of its own, for ``serving``."""
    shutil.copy(migrated_sqlite, tmp_path / DATABASE)
    return tmp_path


@pytest.fixture
async def served(folder: Path) -> AsyncIterator[Served]:
    """Services and app over a fresh database; executions run by ``await served.work_off()``."""
    async with serving(folder) as served:
        yield served


@pytest.fixture
async def ada(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of that app."""
    async with served.client() as client:
        yield client


@pytest.fixture
async def address(served: Served) -> AsyncIterator[Address]:
    """The same behind uvicorn on 127.0.0.1, with an embedded worker."""
    async with listening(served) as address:
        yield address
