"""A file that is only looked into: alone, beside a writer, and with one that comes meanwhile."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from stepwell.errors import ConfigurationError
from stepwell.sessions.ports import Store, Transaction
from stepwell.stores.database_url import open_store
from stepwell.stores.errors import DamagedDataError, SchemaVersionError
from stepwell.testing.stores_rows import (
    a_session,
    make,
    named_id,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(file: Path) -> bytes:
    return file.read_bytes()


def has(id: str) -> Callable[[Transaction], Awaitable[bool]]:
    async def work(tx: Transaction) -> bool:
        return await tx.session(named_id(id)) is not None

    return work


async def test_it_is_read_as_it_is_and_nothing_is_made_beside_it(sqlite_file: Path) -> None:
    before = (names(sqlite_file.parent), content(sqlite_file))
    store = await open_store(f"sqlite:///{sqlite_file}", read_only=True)
    assert not await store.read(has("s1"))
    during = names(sqlite_file.parent)
    with pytest.raises(RuntimeError, match="is only read"):
        await make(store, a_session())
    await store.close()
    assert (during, content(sqlite_file)) == before
    assert names(sqlite_file.parent) == before[0]


async def test_what_a_writer_that_has_it_open_has_committed_is_seen(sqlite_file: Path) -> None:
    writer = await open_store(f"sqlite:///{sqlite_file}")
    reader = await open_store(f"sqlite:///{sqlite_file}", read_only=True)
    assert not await reader.read(has("new"))
    await make(writer, a_session("new"))
    assert await reader.read(has("new"))
    await reader.close()
    await writer.close()
    assert names(sqlite_file.parent) == ["stepwell.db", "stepwell.db-lock"]


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "is gone again"])
async def test_what_was_read_while_a_writer_came_is_read_again(
    stays: bool, sqlite_file: Path
) -> None:
    reader = await open_store(f"sqlite:///{sqlite_file}", read_only=True)
    seen: list[bool] = []

    async def work(tx: Transaction) -> bool:
        if not seen:
            writer = await open_store(f"sqlite:///{sqlite_file}")
            await make(writer, a_session("new"))
            writers.append(writer)
            if not stays:
                await writer.close()
        seen.append(await tx.session(named_id("new")) is not None)
        return seen[-1]

    writers: list[Store] = []
    assert await reader.read(work)
    assert len(seen) == 2
    assert await reader.read(has("new"))
    await reader.close()
    if stays:
        await writers[0].close()


async def test_what_is_no_database_of_this_version_is_refused_and_left_alone(
    sqlite_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "a %41 #folder?"
    folder.mkdir()
    (folder / "empty.db").touch()
    (folder / "junk.db").write_bytes(b"no database at all, but long enough to be looked at")
    before = names(folder)
    for name, error in (
        ("empty.db", SchemaVersionError),
        ("junk.db", DamagedDataError),
        ("none.db", ConfigurationError),
    ):
        with pytest.raises(error):
            await open_store(f"sqlite:///{quote(str(folder))}/{name}", read_only=True)
    assert names(folder) == before


async def test_the_versions_are_told_as_such(sqlite_file: Path) -> None:
    (sqlite_file.parent / "empty.db").touch()
    with pytest.raises(SchemaVersionError) as refused:
        await open_store(f"sqlite:///{sqlite_file.parent}/empty.db", migrate=False)
    assert (refused.value.found, refused.value.is_newer) == (None, False)
    assert refused.value.needed in str(refused.value)
