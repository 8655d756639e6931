"""Fresh databases: copies of one that was migrated once, so that a test starts at once."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from stepwell.stores.database_url import open_store
from stepwell.stores.increments import expand_increment

_MIGRATED: list[bytes] = []


async def migrated(url: str) -> None:
    """Our tables in an empty database."""
    await (await open_store(url)).close()


async def sqlite_url(path: Path) -> str:
    """The URL of that file; if it is not there yet it is made, with our tables in it."""
    url = f"sqlite:///{path}"
    if not _MIGRATED:
        await migrated(url)
        _MIGRATED.append(await asyncio.to_thread(path.read_bytes))
    await asyncio.to_thread(_copied, path)
    return url


def _copied(path: Path) -> None:
    if not path.exists():
        path.write_bytes(_MIGRATED[0])


def rows_as_text(path: Path) -> list[str]:
    """Every row of every table of a file, with compressed increments as the texts that they are."""
    found: list[str] = []
    with closing(sqlite3.connect(path)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            rows = database.execute(f"SELECT * FROM {table}").fetchall()
            found.extend(f"{table} {' '.join(map(_plain, row))}" for row in rows)
    return found


def _plain(value: object) -> str:
    return expand_increment(value) if isinstance(value, bytes) else str(value)
