"""Whether followers still may: one query for all of them, and their rows decide."""

import asyncio

import pytest

from stepwell.server.live import access_watch
from stepwell.server.live.access_watch import AccessWatch
from stepwell.sessions.ports import ACCESS_TOPIC
from tests.unit.server.live.logs import LogInMemory, until
from tests.virtual_time import virtual_time

pytestmark = virtual_time


async def test_one_query_serves_all_followers_and_unchanged_rows_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access_watch, "LOCAL_SECONDS", 0.05)
    log = LogInMemory()
    watch = AccessWatch(log.as_store)
    with watch.register("s1", None) as one, watch.register("s1", "key") as other:
        with watch.register("s2", None) as gone:
            await until(lambda: log.looks >= 5)
            assert log.read_sessions == [["s1", "s2"]]
            assert one.session is not None
            assert (other.session, other.key) == (one.session, None)
            assert gone.session is None
        log.owner, log.marker = "bob", 1
        await until(lambda: one.session is not None and one.session.user_id == "bob")
        assert log.read_sessions == [["s1", "s2"], ["s1"]]
        with watch.register("s1", None) as late:
            await until(late.due.is_set)
            assert late.session == one.session
    looks = log.looks
    await asyncio.sleep(0.3)
    assert log.looks == looks


async def test_word_of_a_change_is_followed_at_once() -> None:
    log = LogInMemory()
    watch = AccessWatch(log.as_store)
    with watch.register("s1", None) as one:
        await asyncio.sleep(0)
        log.bus.publish(ACCESS_TOPIC)
        await asyncio.wait_for(one.due.wait(), 2)
        assert one.session is not None
