"""One client with many idle connections does not lock others out of a real server process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from websockets.asyncio import client as websockets
from websockets.exceptions import ConnectionClosedError

from tests.integration.app.test_serving import ADDRESS, followed, stepwell

CROWD = 300


@asynccontextmanager
async def crowd(url: str, hello: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections of one client, each with these first words."""
    host, port = url.removeprefix("http://").rsplit(":", 1)
    readers: list[asyncio.StreamReader] = []
    writers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(CROWD):
            reader, writer = await asyncio.open_connection(host, int(port))
            readers.append(reader)
            writers.append(writer)
            writer.write(hello)
        yield readers
    finally:
        for writer in writers:
            writer.transport.abort()


async def statuses(readers: list[asyncio.StreamReader]) -> list[bytes]:
    lines: list[bytes] = []
    for reader in readers:
        # Who was refused and stays silent may be hung up on by now.
        with suppress(ConnectionError):
            async with asyncio.timeout(30):
                lines.append(await reader.readline())
    return lines


async def require_service(client: httpx2.AsyncClient) -> None:
    """Health checks are answered, and a user gets an answer live."""
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/ready")).status_code == 200
    sent = await client.post("/agent/messages", json={"content": "Hello"})
    assert sent.status_code == 202, sent.text
    assert await followed(client, sent.json())


@pytest.mark.parametrize("is_socket", [True, False], ids=["sockets", "silent connections"])
async def test_a_crowd_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_socket: bool
) -> None:
    monkeypatch.setenv("STEPWELL_SERVER__MAX_CONNECTIONS", "200")
    monkeypatch.setenv("STEPWELL_SERVER__HEAD_SECONDS", "120")
    monkeypatch.setenv("STEPWELL_SERVER__SOCKET_JOIN_SECONDS", "120")
    async with stepwell(tmp_path, "serve", "--port", "0") as line:
        found = ADDRESS.search(line)
        assert found is not None
        url = found.group()
        upgrade = (
            b"GET /app/stepwell?protocol=7 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        async with (
            crowd(url, upgrade if is_socket else b"") as readers,
            httpx2.AsyncClient(base_url=url, timeout=30) as client,
        ):
            if is_socket:
                answers = await statuses(readers)
                accepted = sum(answer.startswith(b"HTTP/1.1 101") for answer in answers)
                assert accepted == 50, "a quarter of all, and 50 of one address"
            await require_service(client)


async def test_a_socket_that_joins_nothing_is_closed_after_the_time_that_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_SERVER__SOCKET_JOIN_SECONDS", "1")
    async with stepwell(tmp_path, "serve", "--port", "0") as line:
        found = ADDRESS.search(line)
        assert found is not None
        url = found.group().replace("http://", "ws://") + "/app/stepwell?protocol=7"
        async with asyncio.timeout(30), websockets.connect(url) as socket:
            with pytest.raises(ConnectionClosedError, match="no channel was joined within 1 s"):
                async for _ in socket:
                    pass

        assert socket.close_code == 4100
