"""The log of a session as server-sent events, over a real server."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from stepwell.clock import SystemClock
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.ports import ACCESS_TOPIC, Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Session
from tests.integration.server.live.living import (
    ADA,
    Live,
    living,
    numbers,
    raw_stream,
    streaming,
    until,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_stream_tells_the_log_and_then_what_is_new(live: Live) -> None:
    session = await live.session()
    await live.log(session, "one", "two")
    async with streaming(live, session) as stream:
        told = await stream.events(2)
        assert live.services.metrics.live_connections.value(kind="stream") == 1
        await live.log(session, "three")
        told += await stream.events(1)
    assert stream.response.headers["content-type"].startswith("text/event-stream")
    assert numbers(told) == [1, 2, 3]
    assert {one.type for one in told} == {"agent.stream.chunk"}
    assert [one.data["seq"] for one in told] == [1, 2, 3]
    assert told[2].data["payload"] == {"content": "three"}
    assert told[2].data["session_id"] == session.id


@pytest.mark.parametrize(
    ("query", "header", "expected"),
    [("?after=1", None, [2, 3]), ("", "2", [3]), ("?after=0", "1", [2, 3])],
)
async def test_a_client_that_comes_again_is_told_what_it_missed(
    live: Live, query: str, header: str | None, expected: list[int]
) -> None:
    session = await live.session()
    await live.log(session, "one", "two", "three")
    headers = {} if header is None else {"Last-Event-ID": header}
    async with streaming(live, session, query=query, **headers) as stream:
        assert numbers(await stream.events(len(expected))) == expected


async def test_a_cursor_that_is_gone_is_told_as_a_reset(live: Live) -> None:
    session = await live.session()
    await live.log(session, "one")
    async with streaming(live, session, query="?after=7") as stream:
        [told] = await stream.events(1)
        assert (told.id, told.type, told.data) == (1, "reset", {"newest": 1})
        await live.log(session, "two")
        assert numbers(await stream.events(1)) == [2]


async def test_a_cursor_that_is_no_number_is_refused(live: Live) -> None:
    session = await live.session()
    path = f"/agent/sessions/{session.id}/events"
    async with live.client() as client:
        odd = await client.get(path, headers={"Last-Event-ID": "x"})
        negative = await client.get(f"{path}?after=-1")
    assert (odd.status_code, odd.json()["code"]) == (422, "bad_cursor")
    assert negative.status_code == 422


async def test_a_quiet_stream_is_kept_alive_by_comments(live: Live) -> None:
    session = await live.session()
    async with streaming(live, session) as stream, asyncio.timeout(90):
        kinds = [told.type for told in await stream.first(2)]
    assert kinds == ["comment", "comment"]


async def test_a_stream_can_end_with_an_execution(live: Live) -> None:
    sent = await live.services.intake.send_message(ADA, NewMessage(content="add"))
    assert sent.execution is not None
    query = f"?execution={sent.execution.id}"
    async with streaming(live, sent.session, query=query) as stream:
        told = await stream.rest()
    async with streaming(live, sent.session, query=query) as stream:
        again = await stream.rest()
    async with live.client() as client:
        path = f"/agent/sessions/{sent.session.id}/events?execution=none"
        missing = await client.get(path)
    statuses = [one.data["payload"]["status"] for one in told if one.type == "agent.status"]
    assert statuses == ["processing", "completed"]
    assert told[-1].data["payload"]["event_type"] == "execution.completed"
    assert numbers(again) == list(range(1, len(again) + 1))
    # What was followed while it was written comes in other pieces.
    chunk = "agent.stream.chunk"
    assert [one for one in again if one.type != chunk] == [one for one in told if one.type != chunk]
    assert missing.status_code == 404


async def test_others_and_nobody_follow_nothing(live: Live) -> None:
    session = await live.session()
    path = f"/agent/sessions/{session.id}/events"
    async with live.client("bob") as bob, live.client(None) as nobody:
        assert (await bob.get(path)).status_code == 404
        assert (await nobody.get(path)).status_code == 401


async def test_a_token_opens_the_stream_of_its_session_and_nothing_else(live: Live) -> None:
    session, other = await live.session(), await live.session()
    await live.log(session, "one")
    async with live.client() as ada:
        made = await ada.post(f"/agent/sessions/{session.id}/stream-token")
        assert made.status_code == 201
        token = made.json()["token"]
    async with streaming(live, session, None, f"?token={token}") as stream:
        assert numbers(await stream.events(1)) == [1]
    async with live.client(None) as browser:
        for path in (
            f"/agent/sessions/{other.id}/events?token={token}",
            f"/agent/sessions/{session.id}/messages?token={token}",
            f"/agent/sessions/{session.id}/events?token={token[:-2]}",
            f"/agent/sessions/{session.id}/events?token=.",
        ):
            assert (await browser.get(path)).status_code == 401


async def test_a_stream_ends_when_the_key_it_was_opened_with_is_revoked(live: Live) -> None:
    session = await live.session()
    key, secret = await live.services.keys.create(ADA, "laptop")
    async with streaming(live, session, None, Authorization=f"Bearer {secret}") as stream:
        await live.log(session, "one")
        assert numbers(await stream.events(1)) == [1]
        await live.services.keys.revoke(key.id)
        assert await stream.rest() == []


async def test_a_stream_ends_when_the_session_changes_hands(live: Live) -> None:
    session = await live.session()
    async with streaming(live, session) as stream:
        await live.log(session, "one")
        await stream.events(1)
        await _give_away(live, session)
        live.services.store.bus.publish(ACCESS_TOPIC)
        assert await stream.rest() == []


async def _give_away(live: Live, session: Session) -> None:
    async def work(tx: Transaction) -> None:
        locked = await tx.session(session.id, lock=True)
        assert locked is not None
        await tx.save_session(replace(locked, user_id="bob"))

    await live.services.store.write(work, name="test")


async def test_a_user_has_so_many_streams_and_no_more(live: Live) -> None:
    session = await live.session("dora")
    seats = live.services.feeds.seats
    dora = Principal(user_id="dora")
    with contextlib.ExitStack() as taken:
        for _ in range(live.services.settings.live_connections_per_user):
            taken.enter_context(seats.hold(dora))
        async with live.client("dora") as client:
            refused = await client.get(f"/agent/sessions/{session.id}/events")
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
    await live.log(session, "one")
    async with streaming(live, session, "dora") as stream:
        await stream.events(1)


async def test_a_client_that_stops_reading_is_cut_in_time(live: Live) -> None:
    clock = SystemClock()
    session = await live.session()
    await until(lambda: live.services.feeds.following == 0)
    async with raw_stream(live, session) as reader:
        await reader.readuntil(b"retry: 1000\n\n")
        # More than the kernel holds for both ends.
        for _ in range(20):
            await live.log(session, *["x" * 50_000] * 10)
        began = clock.monotonic()
        await until(lambda: live.services.feeds.following == 0)
        assert clock.monotonic() - began < 60
        got = await _all_of(reader)
    assert not got.endswith(b"0\r\n\r\n"), "it was cut, not ended"


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            pieces.append(piece)
    return b"".join(pieces)


async def test_the_server_does_not_wait_for_streams_when_it_ends(tmp_path: Path) -> None:
    clock = SystemClock()
    async with living(tmp_path) as live:
        session = await live.session()
        await live.log(session, "one")
        async with streaming(live, session) as stream:
            await stream.events(1)
            began = clock.monotonic()
            live.server.should_exit = True
            assert await stream.rest() == []
    assert clock.monotonic() - began < 60
