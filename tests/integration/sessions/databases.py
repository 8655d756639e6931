"""Fresh databases: copies of one that was migrated once, so that a test starts at once."""

import asyncio
from pathlib import Path

from stepwell.stores.opening import open_store

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
