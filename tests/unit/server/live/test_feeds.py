"""Feeds: whoever follows a session is told its log from the cursor on, whole, once and in order."""

import asyncio
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from stepwell.server.live.feeds import Feeds
from stepwell.server.live.live_event import LiveEvent
from stepwell.server.live.session_feed import LiveSubscription, Reset
from stepwell.server.settings import ServerSettings
from stepwell.testing import FakeClock
from tests.unit.server.live.logs import LogInMemory, until
from tests.virtual_time import virtual_time

pytestmark = virtual_time


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


@pytest.fixture
async def feeds(log: LogInMemory) -> AsyncIterator[Feeds]:
    made = feeds_of(log)
    yield made
    await made.close()


def feeds_of(log: LogInMemory, **settings: int) -> Feeds:
    return Feeds(log.as_store, FakeClock(), ServerSettings(**settings))


async def taken(subscription: LiveSubscription, up_to: int) -> list[int]:
    """The numbers that come, up to that one; a reset is told as a negative number."""
    numbers: list[int] = []
    async with asyncio.timeout(90):
        while not numbers or abs(numbers[-1]) < up_to:
            batch = await subscription.take()
            assert batch is not None
            numbers += [-one.newest if isinstance(one, Reset) else one.seq for one in batch]
    return numbers


async def test_a_follower_is_told_what_is_behind_its_cursor_and_then_what_is_new(
    log: LogInMemory, feeds: Feeds
) -> None:
    log.append(5)
    async with await feeds.subscribe("s1", 2) as subscription:
        assert await taken(subscription, 5) == [3, 4, 5]
        log.append(2)
        assert await taken(subscription, 7) == [6, 7]
        assert subscription.position == 7
        assert await subscription.take(0) == []


async def test_without_a_cursor_only_what_is_new_is_told(log: LogInMemory, feeds: Feeds) -> None:
    log.append(5)
    async with await feeds.subscribe("s1", None) as subscription:
        log.append()
        assert await taken(subscription, 6) == [6]


async def test_an_envelope_is_encoded_as_clients_see_it(log: LogInMemory, feeds: Feeds) -> None:
    log.append(text="Grüße")
    async with await feeds.subscribe("s1", 0) as subscription:
        batch = await subscription.take()
    assert batch
    assert isinstance(batch[0], LiveEvent)
    envelope = msgspec.json.decode(batch[0].envelope)
    assert [*envelope] == [
        *("id", "seq", "type", "session_id", "execution_id", "timestamp", "payload")
    ]
    assert envelope["payload"] == {"content": "Grüße"}


@pytest.mark.parametrize("cursor", [0, 3, 11, 10**15])
async def test_a_cursor_that_is_gone_is_told_and_the_stream_goes_on_behind_the_newest(
    log: LogInMemory, feeds: Feeds, cursor: int
) -> None:
    log.append(10)
    log.forget(up_to=4)
    async with await feeds.subscribe("s1", cursor) as subscription:
        assert await taken(subscription, 10) == [-10]
        log.append()
        assert await taken(subscription, 11) == [11]


@pytest.mark.parametrize("cursor", [4, 10])
async def test_the_first_and_the_last_cursor_that_are_there_are_good(
    log: LogInMemory, feeds: Feeds, cursor: int
) -> None:
    log.append(10)
    log.forget(up_to=4)
    async with await feeds.subscribe("s1", cursor) as subscription:
        log.append()
        assert await taken(subscription, 11) == list(range(cursor + 1, 12))


async def test_many_followers_of_a_session_cost_one_read(log: LogInMemory, feeds: Feeds) -> None:
    subscriptions = [await feeds.subscribe("s1", 0) for _ in range(100)]
    log.append()
    told = await asyncio.gather(*(taken(one, 1) for one in subscriptions))
    before = log.reads
    log.append()
    told = await asyncio.gather(*(taken(one, 2) for one in subscriptions))
    assert told == [[2]] * 100
    assert log.reads - before == 1
    assert (feeds.followed, feeds.following) == (1, 100)
    for one in subscriptions:
        one.close()
    assert (feeds.followed, feeds.following) == (0, 0)


async def test_followers_are_given_the_same_encoded_event(log: LogInMemory, feeds: Feeds) -> None:
    async with await feeds.subscribe("s1", 0) as one, await feeds.subscribe("s1", 0) as other:
        log.append()
        assert (await one.take() or [None])[0] is (await other.take() or [None])[0]


async def test_who_is_further_behind_than_memory_reaches_reads_the_database(
    log: LogInMemory,
) -> None:
    feeds = feeds_of(log, live_buffer_bytes=2_000)
    async with await feeds.subscribe("s1", 0) as slow, await feeds.subscribe("s1", 0) as quick:
        for start in range(0, 1000, 50):
            log.append(50)
            assert await taken(quick, start + 50) == list(range(start + 1, start + 51))
        assert await taken(slow, 1000) == list(range(1, 1001))
    await feeds.close()


async def test_what_is_deleted_before_a_slow_follower_read_it_is_told_as_a_reset(
    log: LogInMemory,
) -> None:
    feeds = feeds_of(log, live_buffer_bytes=2_000)
    async with await feeds.subscribe("s1", 0) as slow, await feeds.subscribe("s1", 0) as quick:
        log.append(100)
        await taken(quick, 100)
        log.forget(up_to=99)
        assert await taken(slow, 100) == [-100]
        log.append()
        assert await taken(slow, 101) == [101]
    await feeds.close()


async def test_a_batch_is_bounded_in_bytes(log: LogInMemory, feeds: Feeds) -> None:
    log.append(10, text="x" * 30_000)
    async with await feeds.subscribe("s1", 0) as behind:
        batch = await behind.take()
        assert [one.seq for one in batch or () if isinstance(one, LiveEvent)] == [1, 2]
        log.append(1, text="x" * 300_000)
        assert await taken(behind, 11) == list(range(3, 12))


async def test_a_thousand_reconnects_at_random_points_miss_nothing_and_repeat_nothing(
    log: LogInMemory,
) -> None:
    feeds = feeds_of(log, live_buffer_bytes=5_000)
    chance = random.Random(6)
    last, reconnects = 3000, 0

    async def write() -> None:
        while log.newest < last:
            log.append(min(chance.randint(1, 9), last - log.newest))
            for _ in range(chance.randint(0, 12)):
                await asyncio.sleep(0)

    async def follow() -> list[int]:
        nonlocal reconnects
        told: list[int] = []
        while len(told) < last:
            async with await feeds.subscribe("s1", told[-1] if told else 0) as subscription:
                reconnects += 1
                for _ in range(chance.randint(0, 12)):
                    batch = await subscription.take(0.05)
                    told += [one.seq for one in batch or () if isinstance(one, LiveEvent)]
        return told

    async with asyncio.timeout(90):
        *all_told, _ = await asyncio.gather(*(follow() for _ in range(12)), write())
    assert all(told == list(range(1, last + 1)) for told in all_told)
    assert reconnects >= 1000
    assert feeds.followed == 0
    await feeds.close()


async def test_a_database_that_is_away_is_waited_for(log: LogInMemory, feeds: Feeds) -> None:
    async with await feeds.subscribe("s1", 0) as subscription:
        log.go_away(times=3)
        log.append()
        assert await taken(subscription, 1) == [1]


async def test_a_defect_of_the_reader_reaches_its_followers(log: LogInMemory, feeds: Feeds) -> None:
    async with await feeds.subscribe("s1", 0) as subscription:
        log.failures.append(ZeroDivisionError("a defect"))
        log.append()
        with pytest.raises(ZeroDivisionError):
            await taken(subscription, 1)


async def test_closing_ends_every_stream_and_every_later_one(
    log: LogInMemory, feeds: Feeds
) -> None:
    async with await feeds.subscribe("s1", 0) as subscription:
        waiting = asyncio.create_task(subscription.take())
        await asyncio.sleep(0)
        await feeds.close()
        assert await waiting is None
        assert [one async for one in subscription] == []
    async with await feeds.subscribe("s1", 0) as late:
        assert await late.take() is None


async def test_the_reader_ends_with_its_last_follower(log: LogInMemory, feeds: Feeds) -> None:
    before = asyncio.all_tasks()
    one, other = await feeds.subscribe("s1", 0), await feeds.subscribe("s1", 0)
    one.close()
    one.close()
    assert feeds.following == 1
    other.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_idle_followers_read_nothing(log: LogInMemory, feeds: Feeds) -> None:
    subscriptions = [await feeds.subscribe("s1", 0) for _ in range(50)]
    await until(lambda: log.looks >= 2)
    before = log.reads
    await until(lambda: log.looks >= 5)
    assert log.reads == before
    for one in subscriptions:
        one.close()
    looks = log.looks
    await asyncio.sleep(0.5)
    assert log.looks == looks


@pytest.mark.parametrize("marker", [1, None])
async def test_what_the_bus_did_not_say_is_found_by_one_query(
    log: LogInMemory, feeds: Feeds, marker: int | None
) -> None:
    """By another process, or on a bus that loses; also where the store has no marker."""
    async with await feeds.subscribe("s1", 0) as subscription:
        log.append(3, is_told=False)
        log.marker = marker
        assert await taken(subscription, 3) == [1, 2, 3]
