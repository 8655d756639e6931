"""A loopback HTTP/1.1 server whose every byte and pause a test decides.

It answers the n-th request with the n-th answer of its script, the last one for all that follow.
An answer says what is sent, in which pieces, and how it breaks off. The requests are kept.

    async with ByteServer(Answer.sse(b"data: {}"), Answer(status=503)) as server:
        ...  # ask server.url, then look at server.requests
"""

import asyncio
import contextlib
import json
import struct
from collections.abc import Callable, Mapping
from enum import StrEnum
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

Piece = bytes | float
"""Bytes that are sent at once, or seconds of silence."""

FOREVER = float("inf")


class Framing(StrEnum):
    """How the client learns where the body ends."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"


class Ending(StrEnum):
    """What happens to the connection after the last byte."""

    COMPLETE = "complete"
    """The body ends as its framing says, and the connection stays open."""
    EOF = "eof"
    """The connection is closed; chunked and length-framed bodies are then visibly too short."""
    RESET = "reset"
    """The connection is torn down, so that the client's read fails."""
    HANG = "hang"
    """Nothing more comes, until the client or the server goes away."""


class Answer(Struct, frozen=True, kw_only=True):
    """One answer. `cut` ends the body after so many bytes: give it with another ending.

    >>> Answer.json({"ok": True}).body
    b'{"ok": true}'
    """

    status: int = 200
    headers: Mapping[str, str] = {}
    pieces: tuple[Piece, ...] = ()
    framing: Framing = Framing.CHUNKED
    ending: Ending = Ending.COMPLETE
    cut: int | None = None
    silent: bool = False
    """Not even a status line: the ending happens right after the request was read."""

    @classmethod
    def json(cls, value: object, *, status: int = 200, **more: str) -> "Answer":
        """A plain JSON body with its length; `retry_after="2"` becomes the header retry-after."""
        named = {name.replace("_", "-"): text for name, text in more.items()}
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        headers = {"content-type": "application/json", **named}
        return cls(status=status, headers=headers, pieces=(body,), framing=Framing.LENGTH)

    @classmethod
    def sse(cls, *pieces: Piece) -> "Answer":
        """A stream of server-sent events, in these pieces."""
        return cls(headers={"content-type": "text/event-stream"}, pieces=pieces)

    @classmethod
    def never(cls) -> "Answer":
        """No answer at all, and no end."""
        return cls(silent=True, ending=Ending.HANG)

    @property
    def body(self) -> bytes:
        """The whole body, as if nothing broke it off."""
        return b"".join(piece for piece in self.pieces if isinstance(piece, bytes))

    def cut_at(self, size: int, ending: Ending = Ending.EOF) -> "Answer":
        """The same answer, broken off after `size` bytes of its body."""
        return replace(self, cut=size, ending=ending)

    def trickled(self, size: int = 1, pause: float = 0.0) -> "Answer":
        """The same body in pieces of `size` bytes, with a pause before each."""
        body = self.body
        slices = (body[start : start + size] for start in range(0, len(body), size))
        return replace(self, pieces=tuple(part for piece in slices for part in (pause, piece)))


class Request(Struct, frozen=True, kw_only=True):
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class ByteServer:
    """Serves a script of answers on a free loopback port, while the `async with` block lasts."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.disconnects = 0
        """How often a client went away before its answer was complete."""
        self.url = ""
        """Where it listens, for example http://127.0.0.1:50123."""
        self._server: asyncio.Server | None = None
        self._news = asyncio.Event()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def script(self, *answers: Answer) -> None:
        """Gives a new script and forgets the requests so far."""
        self.answers = list(answers)
        self.requests.clear()

    async def until(self, true: Callable[[], object]) -> None:
        """Waits until something holds that a request or a client's going away can change."""
        while not true():
            self._news.clear()
            await self._news.wait()

    async def __aenter__(self) -> "ByteServer":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        for task, writer in self._connections.items():
            # Not close(): that would wait for a client that doesn't read.
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        # drain() then waits until everything is sent: pieces stay apart, a reset loses none.
        writer.transport.set_write_buffer_limits(0)
        # Cancelled only when the block is left: then nobody waits for an answer any more.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._serve(reader, writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            writer.close()
            await writer.wait_closed()
        del self._connections[task]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await _read(reader)) is not None:
            self.requests.append(request)
            self._news.set()
            answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
            sending = asyncio.ensure_future(self._send(answer, writer))
            gone = asyncio.ensure_future(_gone(reader))
            try:
                await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not sending.done():
                    self.disconnects += 1
                    self._news.set()
                    return
                sending.result()
            finally:
                sending.cancel()
                gone.cancel()
                await asyncio.gather(sending, gone, return_exceptions=True)
            if answer.ending is not Ending.COMPLETE or answer.framing is Framing.CLOSE:
                return

    async def _send(self, answer: Answer, writer: asyncio.StreamWriter) -> None:
        if not answer.silent:
            writer.write(_head(answer))
            left = len(answer.body) if answer.cut is None else answer.cut
            for piece in answer.pieces:
                if isinstance(piece, bytes):
                    await _write(writer, piece[:left], answer.framing)
                    left -= len(piece[:left])
                elif left:
                    await _pause(piece)
            if answer.ending is Ending.COMPLETE and answer.framing is Framing.CHUNKED:
                writer.write(b"0\r\n\r\n")
            await writer.drain()
        if answer.ending is Ending.HANG:
            await asyncio.Event().wait()
        if answer.ending is Ending.RESET:
            # Lingering for zero seconds makes close() send a reset instead of an orderly end.
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method=method, path=path, headers=headers, body=body)


async def _gone(reader: asyncio.StreamReader) -> None:
    """Returns when the client has closed the connection; what it sends meanwhile stays unread."""
    while not reader.at_eof():
        await asyncio.sleep(0.01)
        if reader.exception() is not None:
            return


def _head(answer: Answer) -> bytes:
    framed = {
        Framing.CHUNKED: "transfer-encoding: chunked",
        Framing.LENGTH: f"content-length: {len(answer.body)}",
        Framing.CLOSE: "connection: close",
    }[answer.framing]
    lines = [f"{name}: {value}" for name, value in answer.headers.items()]
    head = [f"HTTP/1.1 {answer.status} Scripted", *lines, framed, "", ""]
    return "\r\n".join(head).encode("latin-1")


async def _write(writer: asyncio.StreamWriter, piece: bytes, framing: Framing) -> None:
    if not piece:
        return
    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if framing is Framing.CHUNKED else piece)
    await writer.drain()


async def _pause(seconds: float) -> None:
    if seconds == FOREVER:
        await asyncio.Event().wait()
    await asyncio.sleep(seconds)
