"""How one file is written to: batches, one lock, one writer."""

import asyncio
import fcntl
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Transaction
from stepwell.stores.database_url import open_store
from stepwell.stores.retries import PassingFault
from stepwell.stores.sqlite import file_lock
from stepwell.stores.sqlite.file_lock import FileLock
from stepwell.testing.stores_rows import (
    a_session,
    an_entry,
    make,
    named_id,
    write,
)


async def test_writes_that_wait_share_a_commit(sqlite_file: Path) -> None:
    store = await open_store(f"sqlite:///{sqlite_file}")
    session = a_session()
    await make(store, session)
    seen: list[int] = []

    def committed() -> int:
        connection = sqlite3.connect(sqlite_file)
        count = connection.execute("SELECT count(*) FROM agent_journal").fetchone()[0]
        connection.close()
        return count

    async def say(n: int) -> None:
        async def work(tx: Transaction) -> None:
            await tx.append(session, [an_entry()])
            seen.append(committed())

        await write(store, work)
        # Whoever returns has been committed.
        assert committed() > n // 64

    await asyncio.gather(*(say(n) for n in range(50)))
    await store.close()
    # While they ran, most of those before them were not committed yet.
    assert len(set(seen)) <= 25
    assert committed() == 50


async def test_a_write_inside_of_a_write_is_refused(sqlite_file: Path) -> None:
    store = await open_store(f"sqlite:///{sqlite_file}")

    async def outer(tx: Transaction) -> None:
        await make(store, a_session())

    with pytest.raises(RuntimeError, match="inside of another write"):
        await write(store, outer)
    await make(store, a_session())
    await store.close()
    with pytest.raises(RuntimeError, match="closed"):
        await make(store, a_session("late"))


async def test_a_read_can_write_nothing(sqlite_file: Path) -> None:
    store = await open_store(f"sqlite:///{sqlite_file}")
    await make(store, a_session())
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await store.read(lambda tx: tx.delete_session(named_id("s")))
    assert await store.read(lambda tx: tx.session(named_id("s"))) is not None
    await store.close()


async def test_every_write_holds_the_lock_beside_the_file(sqlite_file: Path) -> None:
    store = await open_store(f"sqlite:///{sqlite_file}")
    lock = Path(f"{sqlite_file}-lock").open("w")  # noqa: ASYNC230, SIM115
    fcntl.flock(lock, fcntl.LOCK_EX)
    writing = asyncio.create_task(make(store, a_session()))
    await asyncio.sleep(0.2)
    # Readers and the loop go on meanwhile.
    assert await store.read(lambda tx: tx.session(named_id("s"))) is None
    assert not writing.done()
    lock.close()
    await asyncio.wait_for(writing, 90)
    await store.close()


async def test_a_lock_that_is_given_up_is_left_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "_LONGEST_WAIT", 0.05)
    first, second, third = (FileLock(tmp_path / "x-lock") for _ in range(3))
    await first.acquire()
    with pytest.raises(PassingFault, match="another process holds"):
        await second.acquire()
    waiting = asyncio.create_task(third.acquire())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    first.release()
    monkeypatch.setattr(file_lock, "_LONGEST_WAIT", 5)
    # Those who gave up have let go, or do so when they get it.
    await second.acquire()
    second.release()


async def test_a_lock_that_cannot_be_opened_is_tried_again(sqlite_file: Path) -> None:
    from stepwell.testing import FakeClock

    store = await open_store(f"sqlite:///{sqlite_file}", clock=FakeClock())
    lock = Path(f"{sqlite_file}-lock")
    lock.unlink()  # noqa: ASYNC240
    lock.mkdir()  # noqa: ASYNC240
    with pytest.raises(StoreUnavailableError, match="-lock can't be taken: Is a directory"):
        await make(store, a_session())
    lock.rmdir()  # noqa: ASYNC240
    await make(store, a_session())
    await store.close()


async def test_a_file_with_two_names_has_one_lock(sqlite_file: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "other.db"
    link.symlink_to(sqlite_file)
    store = await open_store(f"sqlite:///{link}")
    await make(store, a_session())
    assert Path(f"{sqlite_file}-lock").exists()  # noqa: ASYNC240
    assert [path.name for path in link.parent.iterdir()] == ["other.db"]
    await store.close()


async def test_a_file_that_others_can_read_is_made_private(sqlite_file: Path) -> None:
    sqlite_file.chmod(0o644)  # noqa: ASYNC240
    log = Path(f"{sqlite_file}-wal")
    log.touch(0o644)  # noqa: ASYNC240
    store = await open_store(f"sqlite:///{sqlite_file}")
    await make(store, a_session())
    assert sqlite_file.stat().st_mode & 0o777 == 0o600  # noqa: ASYNC240
    assert log.stat().st_mode & 0o777 == 0o600  # noqa: ASYNC240
    await store.close()


async def test_a_file_that_cannot_be_made_private_is_warned_of(
    sqlite_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    sqlite_file.chmod(0o640)  # noqa: ASYNC240
    monkeypatch.setattr(Path, "chmod", refuse)
    await (await open_store(f"sqlite:///{sqlite_file}")).close()
    assert "stepwell.db is open to other users" in caplog.text


async def test_a_foreign_writer_is_waited_for_and_then_given_up_on(
    sqlite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepwell.stores.sqlite import sqlite_store
    from stepwell.testing import FakeClock

    monkeypatch.setattr(sqlite_store, "_BUSY_SECONDS", 0.01)
    store = await open_store(f"sqlite:///{sqlite_file}", clock=FakeClock())
    foreign = sqlite3.connect(sqlite_file, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="locked"):
        await make(store, a_session())
    foreign.execute("COMMIT")
    foreign.close()
    await make(store, a_session())
    await store.close()


async def test_the_log_of_the_file_does_not_grow_without_end(sqlite_file: Path) -> None:
    store = await open_store(f"sqlite:///{sqlite_file}")
    session = a_session()
    await make(store, session)
    entries = [an_entry(payload={"text": "x" * 500})] * 1000
    for _ in range(12):
        await write(store, lambda tx: tx.append(session, entries))
    log = Path(f"{sqlite_file}-wal").stat().st_size  # noqa: ASYNC240
    size = (await store.read(lambda tx: tx.size())).event_characters
    await store.close()
    assert log < size


async def test_a_write_that_is_cancelled_leaves_the_connection_to_the_next(
    sqlite_file: Path,
) -> None:
    store = await open_store(f"sqlite:///{sqlite_file}")
    begun = asyncio.Event()

    async def hang(tx: Transaction) -> None:
        await tx.add_session(a_session("cancelled"))
        begun.set()
        await asyncio.Event().wait()

    try:
        hanging = asyncio.create_task(store.write(hang, name="hang"))
        await begun.wait()
        behind = asyncio.create_task(
            store.write(lambda tx: tx.add_session(a_session("behind")), name="behind")
        )
        hanging.cancel()
        await asyncio.wait({hanging})
        await behind
        committing = asyncio.create_task(
            store.write(lambda tx: tx.add_session(a_session("committing")), name="commit")
        )
        await asyncio.sleep(0)  # it is about to commit, or does
        committing.cancel()
        await asyncio.wait({committing})
        await store.write(lambda tx: tx.add_session(a_session("after")), name="after")

        def there(id: str) -> Any:
            return store.read(lambda tx: tx.session(named_id(id)))

        assert hanging.cancelled()
        assert await there("cancelled") is None
        assert await there("behind") is not None
        assert await there("after") is not None
    finally:
        await store.close()
