"""A search takes its time; nobody else waits for it, and it ends."""

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy import text

from stepwell.sessions.errors import RefusedError, TooManyError
from stepwell.sessions.ports import SessionFilter, Store, Transaction
from stepwell.sessions.records import Session
from stepwell.stores import rows, search_turns
from stepwell.stores.database_url import open_store
from stepwell.stores.sqlite.sqlite_store import SqliteStore
from stepwell.testing.stores_rows import (
    TENANT,
    a_message,
    a_session,
    make,
    named_id,
    write,
)

WORD = "b" + "a" * 49
"""Found nowhere, but almost, at every place."""


async def long_talk(store: Store) -> None:
    session = a_session()
    await make(store, session)
    # SQLite is given a quicker way to look at a text.
    size = 40_000 if isinstance(store, SqliteStore) else 6_000
    said = [a_message(f"m{n}", content="a" * size) for n in range(400)]
    await write(store, lambda tx: tx.add_messages(session, said))


async def found(store: Store, search: str) -> Sequence[Session]:
    which = SessionFilter(tenant_id=TENANT, search=search)
    return await store.read(lambda tx: tx.sessions(which, limit=9))


async def test_searches_do_not_hold_up_other_reads(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is.
    monkeypatch.setattr(rows, "SEARCH_SECONDS", 30.0)
    monkeypatch.setattr(search_turns, "_LONGEST_WAIT", 60.0)
    await long_talk(store)
    searches = [asyncio.create_task(found(store, WORD)) for _ in range(12)]
    await asyncio.sleep(0.01)
    assert await store.read(lambda tx: tx.session(named_id("s"))) is not None
    waiting = sum(not search.done() for search in searches)
    assert await asyncio.gather(*searches) == [[]] * 12
    # Without a way of their own the last of them would have begun before the read.
    assert waiting > 6


async def test_a_search_that_takes_too_long_is_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await long_talk(store)
    monkeypatch.setattr(rows, "SEARCH_SECONDS", 0.002)
    with pytest.raises(RefusedError, match="did not end within") as refused:
        await found(store, WORD)
    assert refused.value.code == "search_too_slow"
    monkeypatch.undo()
    # The connection is as good as before.
    assert await found(store, WORD) == []
    assert len(await found(store, "AAA")) == 1


async def test_the_limit_of_a_search_is_for_nothing_else(postgres_database: str) -> None:
    store = await open_store(postgres_database)
    limits: list[str] = []

    async def look(tx: Transaction) -> None:
        await tx.sessions(SessionFilter(tenant_id=TENANT, search="x"), limit=9)
        await tx.session(named_id("s"))
        shown = await tx.connection.execute(text("SHOW statement_timeout"))
        limits.append(shown.scalar())

    await store.read(look)
    await store.close()
    assert limits == ["9s"]


async def test_a_search_that_nobody_waits_for_ends(store: Store) -> None:
    await long_talk(store)
    for wait in (0.0, 0.001, 0.01):
        searching = asyncio.create_task(found(store, WORD))
        await asyncio.sleep(wait)
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
    assert len(await found(store, "aaa")) == 1


async def test_a_search_may_be_part_of_a_write(store: Store) -> None:
    await make(store, a_session(title="Letters"))
    which = SessionFilter(tenant_id=TENANT, search="letters")
    assert len(await write(store, lambda tx: tx.sessions(which, limit=9))) == 1


async def test_who_waits_too_long_for_a_turn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_turns, "_LONGEST_WAIT", 0.01)
    turns = search_turns.SearchTurns(1)
    async with turns:
        with pytest.raises(TooManyError) as refused:
            async with turns:
                pass
    assert refused.value.code == "search_busy"
    async with turns:
        pass
