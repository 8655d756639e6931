"""How often PostgreSQL is visited: the statements of a commit travel together, and what a worker or
a server asks for all its executions or sessions is one statement, however many they are."""

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from stepwell.sessions.occurrence import Note, Occurrence
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import EventType
from stepwell.stores.database_url import open_store
from stepwell.testing.stores_rows import (
    a_message,
    a_session,
    a_snapshot,
    a_worker,
    an_entry,
    an_execution,
    at,
    make,
    named_id,
    write,
)

_OF_THE_BUS = ("pg_notify", "synchronous_commit", "LISTEN", "SELECT 1")
"""What its own connections send, at their own time."""


class CountedCursor(psycopg.AsyncCursor[Any]):
    """Counts what is sent to the server."""

    trips = 0

    async def execute(self, *arguments: Any, **options: Any) -> Any:
        if not any(word in str(arguments[0]) for word in _OF_THE_BUS):
            CountedCursor.trips += 1
        return await super().execute(*arguments, **options)


@pytest.fixture
async def store(postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """One whose statements are counted."""
    connect = psycopg.AsyncConnection.connect

    async def connect_counted(*arguments: Any, **options: Any) -> Any:
        connection = await connect(*arguments, **options)
        connection.cursor_factory = CountedCursor
        return connection

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", connect_counted)
    opened = await open_store(postgres_database)
    yield opened
    await opened.close()


async def trips_of(store: Store, work: Any, *, reads: bool = False) -> int:
    """How often a transaction goes to the server; the second time, when all is prepared."""
    for _ in range(2):
        CountedCursor.trips = 0
        await (store.read(work) if reads else write(store, work))
    assert CountedCursor.trips > 0
    return CountedCursor.trips


async def claim_all(store: Store, count: int) -> list[Any]:
    ids = [named_id(f"x{n}") for n in range(count)]
    await make(store, None, *(an_execution(f"x{n}", None) for n in range(count)))
    await write(store, lambda tx: tx.add_worker(a_worker(lease_until=at(1000))))
    return list(await write(store, lambda tx: tx.claim(ids, worker_id="w", now=at(0))))


async def test_a_step_is_stored_in_few_trips(store: Store) -> None:
    await make(store, a_session(), an_execution())
    await write(store, lambda tx: tx.add_worker(a_worker(lease_until=at(1000))))
    claims = await write(store, lambda tx: tx.claim([named_id("x")], worker_id="w", now=at(0)))
    running, number = claims[0].execution, 0

    async def step(tx: Transaction) -> None:
        nonlocal number
        number += 1
        head = await tx.lock_journal(named_id("s"))
        assert head is not None
        await tx.save_progress(running)
        await tx.add_snapshot(a_snapshot(f"c{number}", number))
        messages = [a_message(f"m{number}.{n}") for n in range(4)]
        notes = [Occurrence.of_note(*Note(it, EventType.STEP_STARTED)) for it in messages]
        await tx.append(head, [*notes, *(an_entry() for _ in range(4))])

    trips = await trips_of(store, step)
    assert trips <= 3


@pytest.mark.parametrize("held", [1, 40])
async def test_a_heartbeat_takes_as_many_trips_for_many_executions(store: Store, held: int) -> None:
    assert len(await claim_all(store, held)) == held

    async def beat(tx: Transaction) -> None:
        assert await tx.renew_worker("w", at(2000))
        assert len(await tx.held_by("w")) == held

    assert await trips_of(store, beat) <= 3


@pytest.mark.parametrize("followed", [1, 200])
async def test_news_of_all_followed_sessions_is_one_query(store: Store, followed: int) -> None:
    names = [f"s{n}" for n in range(followed)]
    for name in names:
        await make(store, a_session(name))
    known = {named_id(name): 0 for name in names}

    async def look(tx: Transaction) -> None:
        assert await tx.sessions_with_news(known) == []

    # The transaction begins and ends with the query and after it.
    assert await trips_of(store, look, reads=True) <= 2
