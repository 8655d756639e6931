"""Many follow one session: who comes again misses nothing, who stops reading harms nobody."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from stepwell.sessions.records import Session
from tests.integration.server.live.living import Live, Stream, living, raw_stream, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
OTHERS = 200
EVENTS = 10


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    folder = tmp_path_factory.mktemp("many")
    settings = {"live_connections_per_user": 300, "live_buffer_bytes": 20_000}
    async with living(folder, live_cut_seconds=600.0, **settings) as made:
        yield made


async def test_reconnects_at_random_points_of_a_live_stream_miss_and_repeat_nothing(
    live: Live,
) -> None:
    session = await live.session()
    chance = random.Random(6)
    last, reconnects = 400, 0

    async def write() -> None:
        written = 0
        while written < last:
            count = min(chance.randint(1, 9), last - written)
            await live.log(session, *["x" * 100] * count)
            written += count
            await asyncio.sleep(0.005)

    async def follow(client: httpx2.AsyncClient) -> list[int]:
        nonlocal reconnects
        told: list[int] = []
        while len(told) < last:
            path = f"/agent/sessions/{session.id}/events?after={told[-1] if told else 0}"
            async with client.stream("GET", path) as response:
                reconnects += 1
                wanted = min(chance.randint(1, 7), last - len(told))
                told += [one.id or 0 for one in await Stream(response).events(wanted)]
        return told

    async with asyncio.timeout(120), live.client() as client:
        *all_told, _ = await asyncio.gather(*(follow(client) for _ in range(11)), write())
    assert all(told == list(range(1, last + 1)) for told in all_told)
    assert reconnects >= 1000


class Follower:
    """Reads a stream and keeps the number of its newest event."""

    def __init__(self) -> None:
        self._open = b""
        self.newest = 0

    async def read(self, reader: asyncio.StreamReader) -> None:
        while piece := await reader.read(65536):
            *lines, self._open = (self._open + piece).split(b"\n")
            for line in lines:
                if found := re.match(rb"id: (\d+)", line):
                    self.newest = int(found[1])


@asynccontextmanager
async def following(live: Live, session: Session) -> AsyncIterator[list[Follower]]:
    followers = [Follower() for _ in range(OTHERS)]
    async with AsyncExitStack() as stack:
        tasks = []
        for one in followers:
            reader = await stack.enter_async_context(raw_stream(live, session))
            tasks.append(asyncio.create_task(one.read(reader)))
        await until(lambda: live.services.feeds.following >= OTHERS)
        yield followers
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: live.services.feeds.following == 0)


async def deliver(live: Live, session: Session, followers: list[Follower]) -> float:
    """Log events, each once its predecessor came to all; the CPU seconds that it took."""
    began = time.process_time()
    for _ in range(EVENTS):
        number = followers[0].newest + 1
        await live.log(session, "x" * 200)
        await until(lambda: all(one.newest >= number for one in followers))  # noqa: B023
    return time.process_time() - began


def most_buffered(live: Live) -> int:
    """The bytes that wait in this process for the slowest connection."""
    connections: set[Any] = live.server.server_state.connections
    sizes = [one.transport.get_write_buffer_size() for one in connections]
    return max(sizes, default=0)


async def test_a_reader_that_stops_costs_little_and_does_not_slow_the_others(live: Live) -> None:
    quick, stuck = await live.session(), await live.session()
    async with following(live, quick) as followers:
        alone = min([await deliver(live, quick, followers) for _ in range(4)])
        async with raw_stream(live, stuck) as reader:
            await reader.readuntil(b"retry: 1000\n\n")
            for _ in range(12):
                await live.log(stuck, *["x" * 50_000] * 10)
            await until(lambda: most_buffered(live) > 0)
            beside = min([await deliver(live, quick, followers) for _ in range(3)])
            # The server has not cut it yet: what came to the others did not wait for it.
            assert live.services.feeds.following == OTHERS + 1
            assert 0 < most_buffered(live) < 256 * 1024
    assert beside < alone * 1.5
