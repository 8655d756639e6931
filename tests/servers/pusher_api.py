"""A strict server of the Pusher HTTP API: it checks each request by the published rules.

It computes signatures itself, from https://pusher.com/docs/channels/library_auth_reference/rest-api,
and shares no code with what it checks. What it refuses gets the status and the words of Pusher.
"""

import asyncio
import hashlib
import hmac
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from stepwell.clock import Clock, SystemClock

LARGEST_DATA = 10_240
LARGEST_REVERB_REQUEST = 10_000
SECONDS_OFF = 600


class Event(NamedTuple):
    """An event that was taken."""

    channel: str
    name: str
    data: str

    @property
    def envelope(self) -> Any:
        """What the data says."""
        return json.loads(self.data)


class Refusal(Exception):
    """A status and what is said with it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class PusherApi:
    """One app on a free port of this machine.

    `status` makes it answer so, whatever comes; `as_reverb` limits the whole request as Laravel
    Reverb does; `silent` never answers.
    """

    def __init__(self, *, app_id: str, key: str, secret: str, clock: Clock | None = None) -> None:
        self.app_id, self.key, self.secret = app_id, key, secret
        self.clock = clock or SystemClock()
        self.events: list[Event] = []
        self.refusals: list[str] = []
        self.connections = 0
        self.status: int | None = None
        self.says = "as it was told"
        self.as_reverb = False
        self.silent = False
        self.url = ""
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "PusherApi":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        # Swallowed here, where the task ends: asyncio would print it.
        with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            while True:
                status, answer = await self._answer(reader)
                text = answer.encode()
                head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
                writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
                await writer.drain()
        self._connections.discard(task)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, str]:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("ascii").rstrip("\r\n").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers["content-length"]))
        if self.silent:
            await asyncio.Event().wait()
        try:
            if self.status is not None:
                raise Refusal(self.status, self.says)
            if self.as_reverb and len(head) + len(body) > LARGEST_REVERB_REQUEST:
                raise Refusal(413, "Payload too large.")
            self._check(first, headers, body)
        except Refusal as refusal:
            self.refusals.append(str(refusal))
            return refusal.status, str(refusal)
        return 200, "{}"

    def _check(self, first: str, headers: dict[str, str], body: bytes) -> None:
        method, target, version = first.split(" ")
        path, _, query = target.partition("?")
        if (method, version) != ("POST", "HTTP/1.1") or path != f"/apps/{self.app_id}/events":
            raise Refusal(404, "Not found")
        if headers.get("content-type") != "application/json":
            raise Refusal(400, "Content-Type must be application/json")
        self._check_signature(path, parse_qsl(query, strict_parsing=True), body)
        self.events.extend(_events(body))

    def _check_signature(self, path: str, pairs: list[tuple[str, str]], body: bytes) -> None:
        given = dict(pairs)
        names = {"auth_key", "auth_timestamp", "auth_version", "body_md5", "auth_signature"}
        if set(given) != names or len(pairs) != len(names):
            raise Refusal(401, f"Expected {sorted(names)}, got {sorted(given)}")
        if given["auth_key"] != self.key:
            raise Refusal(401, "Unknown auth_key")
        if given["auth_version"] != "1.0":
            raise Refusal(401, "Version required and must be 1.0")
        now = self.clock.now().timestamp()
        if abs(now - int(given["auth_timestamp"])) > SECONDS_OFF:
            at = given["auth_timestamp"]
            raise Refusal(401, f"Timestamp expired: Given timestamp ({at}) not within 600s")
        if given["body_md5"] != hashlib.md5(body).hexdigest():
            raise Refusal(401, "Invalid body_md5")
        signature = given.pop("auth_signature")
        signed = "\n".join(["POST", path, "&".join(f"{k}={given[k]}" for k in sorted(given))])
        right = hmac.digest(self.secret.encode(), signed.encode(), "sha256").hex()
        if signature != right:
            raise Refusal(
                401,
                f"Invalid signature: you should have sent HmacSHA256Hex({signed!r}, "
                f"your_secret_key), but you sent {signature!r}",
            )


def _events(body: bytes) -> list[Event]:
    try:
        event = json.loads(body.decode("utf-8"))
    except ValueError as error:
        raise Refusal(400, f"Invalid JSON: {error}") from error
    name, channels, data = event.get("name"), event.get("channels"), event.get("data")
    if not isinstance(data, str):
        raise Refusal(400, "data must be a text")
    if len(data.encode()) > LARGEST_DATA:
        raise Refusal(
            413,
            f"The data content of this event exceeds the allowed maximum ({LARGEST_DATA} bytes).",
        )
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise Refusal(400, "Invalid event name")
    if not isinstance(channels, list) or not 0 < len(channels) <= 100:
        raise Refusal(400, "Between 1 and 100 channels are required")
    for channel in channels:
        if len(channel) > 164 or not re.fullmatch(r"[A-Za-z0-9_\-=@,.;]+", channel):
            raise Refusal(400, f"Invalid channel name {channel!r}")
    return [Event(channel, name, data) for channel in channels]


@contextmanager
def in_a_thread(api: PusherApi) -> Iterator[PusherApi]:
    """Serves while the block lasts on an event loop of its own, for clients that use several."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(api.__aenter__(), loop).result(10)
        try:
            yield api
        finally:
            asyncio.run_coroutine_threadsafe(api.__aexit__(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
