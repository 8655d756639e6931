"""A bare HTTP/1.1 client on one kept connection: cheap enough to share two cores with a server."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class HttpConnection:
    """Requests with JSON bodies, one after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        self._reader, self._writer, self._host = reader, writer, host

    async def post(self, path: str, body: Any) -> Any:
        """The JSON of the answer; raises unless it is a success."""
        payload = json.dumps(body).encode()
        self._writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )
        status, headers = await self._head()
        answer = await self._reader.readexactly(int(headers.get(b"content-length", b"0")))
        if not 200 <= status < 300:
            raise AssertionError(f"POST {path}: {status} {answer[:300]!r}")
        return json.loads(answer)

    async def events(self, path: str) -> AsyncIterator[bytes]:
        """The lines of a stream of server-sent events, once its head has come."""
        self._writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n"
            "Accept: text/event-stream\r\n\r\n".encode()
        )
        status, _ = await self._head()
        if status != 200:
            raise AssertionError(f"GET {path}: {status}")
        yield b""
        while line := await self._reader.readline():
            yield line

    async def _head(self) -> tuple[int, dict[bytes, bytes]]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        pairs = (line.split(b":", 1) for line in lines if line)
        return int(first.split()[1]), {name.lower(): value.strip() for name, value in pairs}


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[HttpConnection]:
    """A connection to a port of this machine for the length of a block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    try:
        yield HttpConnection(reader, writer, f"127.0.0.1:{port}")
    finally:
        writer.close()
