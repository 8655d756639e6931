"""What anybody may do who connects and has asked for nothing yet."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepwell.server.live.client_connection import LiveConnections, LiveHttpProtocol
from tests.integration.server.live.living import Live, living, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = b"GET /health HTTP/1.1\r\nHost: local"
UPGRADE = (
    b"GET /app/stepwell?protocol=7 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Chosen(LiveHttpProtocol):
    """Over the parser that uvicorn chooses, with little patience."""

    head_seconds = 1.0


class OverH11(LiveConnections, H11Protocol):
    """Over the one that is always there."""

    head_seconds = 1.0


@pytest_asyncio.fixture(params=[Chosen, OverH11], scope="module", loop_scope="module")
async def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Live]:
    folder = tmp_path_factory.mktemp("line")
    async with living(folder, http=request.param, max_connections=20) as made:
        yield made


@pytest_asyncio.fixture(params=[Chosen, OverH11], scope="module", loop_scope="module")
async def patient(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Live]:
    """One that would wait for a head for a long time."""
    http = type("Patient", (request.param,), {"head_seconds": 60.0})
    async with living(tmp_path_factory.mktemp("line"), http=http, max_connections=20) as made:
        yield made


@pytest.fixture
def longer(monkeypatch: pytest.MonkeyPatch) -> float:
    """Time for a head that comes on a busy machine; gives a pause that outlasts it."""
    for protocol in (Chosen, OverH11):
        monkeypatch.setattr(protocol, "head_seconds", 3.0)
    return 3.5


@asynccontextmanager
async def connection(live: Live) -> AsyncIterator[tuple[asyncio.StreamReader, Any]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server hangs up, which has to be soon."""
    got = b""
    async with asyncio.timeout(90):
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65536):
                got += part
    return got


@pytest.mark.parametrize("sent", [b"", b"G", HALF, GET + HALF])
async def test_who_does_not_say_what_it_wants_is_hung_up_on(live: Live, sent: bytes) -> None:
    async with connection(live) as (reader, writer):
        if sent.startswith(GET):
            writer.write(GET)
            await reader.readuntil(b'{"status":"ok"}')
        writer.write(sent.removeprefix(GET))
        assert await all_of(reader) == b""


async def test_a_head_that_trickles_in_has_no_more_time_than_another(live: Live) -> None:
    is_all_sent = False

    async def trickle(writer: asyncio.StreamWriter) -> None:
        nonlocal is_all_sent
        with contextlib.suppress(ConnectionError):
            for byte in HALF * 30:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)
            is_all_sent = True

    async with connection(live) as (reader, writer):
        trickling = asyncio.create_task(trickle(writer))
        assert await all_of(reader) == b""
        assert not is_all_sent
        trickling.cancel()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nx: " + b"a" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 50_000,
        GET + b"GET /" + b"a" * 200_000,
        GET[:-2] + b"x: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_a_head_without_an_end_is_refused(patient: Live, sent: bytes) -> None:
    async with connection(patient) as (reader, writer):
        with contextlib.suppress(ConnectionError):
            writer.write(sent)
            await writer.drain()
        got = await all_of(reader)
    is_second = sent.startswith(GET)
    # Who still sends may not get to read that it was refused.
    assert got.count(b" 200 OK") == is_second
    assert got.count(b"HTTP/1.1") == is_second or b"HTTP/1.1 4" in got


async def test_who_asks_in_time_is_answered_and_may_ask_again(live: Live, longer: float) -> None:
    async with connection(live) as (reader, writer):
        for pause in (longer, 0):
            for part in (GET[:9], GET[9:40], GET[40:]):
                writer.write(part)
                await asyncio.sleep(0.02)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(15) == b'{"status":"ok"}'
            await asyncio.sleep(pause)


async def test_a_body_has_more_time_than_a_head(live: Live, longer: float) -> None:
    body = b'{"content": "hello"}'
    head = b"POST /agent/messages HTTP/1.1\r\nHost: localhost\r\nX-User: ada\r\nContent-Length: %d"
    async with connection(live) as (reader, writer):
        writer.write(head % len(body) + b"\r\nContent-Type: application/json\r\n\r\n")
        await asyncio.sleep(longer)
        writer.write(body)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 202")


async def test_the_answer_for_a_body_that_nobody_wants_arrives(patient: Live) -> None:
    head = b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 300000\r\n\r\n"
    async with connection(patient) as (reader, writer):
        writer.write(head)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 421")
        writer.write(b"a" * 300_000)
        await writer.drain()
        writer.write(GET)
        await reader.readuntil(b"HTTP/1.1 200")


async def test_a_socket_stays_open(live: Live, longer: float) -> None:
    async with connection(live) as (reader, writer):
        writer.write(UPGRADE)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 101")
        await reader.readuntil(b"connection_established")
        await reader.read(1000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(longer):
                await reader.read(1)


async def test_one_connection_too_many_costs_the_one_that_was_silent_longest(
    patient: Live,
) -> None:
    connections = patient.server.server_state.connections
    async with contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(connection(patient)) for _ in range(20)]
        await until(lambda: len(connections) == 20)
        async with connection(patient) as (reader, writer):
            writer.write(GET)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        assert await all_of(silent[0][0]) == b""
        silent[1][1].write(GET)
        assert (await silent[1][0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    await until(lambda: not connections)


async def test_when_all_connections_are_in_use_health_checks_are_answered(patient: Live) -> None:
    connections = patient.server.server_state.connections
    asking = b"POST /agent/messages HTTP/1.1\r\nHost: localhost\r\nX-User: ada\r\n"
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            _, writer = await stack.enter_async_context(connection(patient))
            # A body that is yet to come.
            writer.write(asking + b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n")
        await until(lambda: len(connections) == 20 and all(each.cycle for each in connections))
        async with connection(patient) as (reader, writer):
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        async with connection(patient) as (reader, writer):
            writer.write(b"GET /agent/sessions HTTP/1.1\r\nHost: localhost\r\nX-User: ada\r\n\r\n")
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 503")
    await until(lambda: not connections)


@pytest.mark.usefixtures("longer")
async def test_who_was_hung_up_on_leaves_room_for_others(live: Live) -> None:
    async with contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(connection(live)) for _ in range(20)]
        for reader, _ in silent:
            assert await all_of(reader) == b""
        async with connection(live) as (reader, writer):
            writer.write(GET)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
