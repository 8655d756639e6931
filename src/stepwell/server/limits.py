"""Limits in front of the routes, as ASGI middleware: size, nesting, type and encoding of bodies,
query parameters, and the rate of a user's sends.
"""

import asyncio
import re
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from stepwell.clock import Clock
from stepwell.server.metrics import Metrics
from stepwell.server.problems import problem
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import TooManyError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_DRAIN_SECONDS = 2.0
_DRAINED_TIMES = 8
_FORM = "application/x-www-form-urlencoded"
_FORM_PATH = "/broadcasting/auth"
_FORM_BYTES = 8 * 1024
_QUERY_PARAMETERS = 100
_NUMBER_DIGITS = 400
"""The most digits in a row. The largest float has 309; parsing takes quadratic time."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A whole string, also an unterminated one, so that the search never restarts inside it."""
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_DIGITS_AS_ZERO = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_UTF_8_NAMES = frozenset({"utf-8", "utf8"})


class BodyLimits:
    """Reads the whole body within its limits before it passes the request on."""

    def __init__(self, app: AsgiApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope.get("query_string", b"").count(b"&") >= _QUERY_PARAMETERS:
            await self._refuse(_too_many_parameters(), "query", scope, receive, send)
            return
        headers = Headers(scope=scope)
        if _declared_length(headers) > self._settings.max_body_bytes:
            await self._refuse_large(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                body = await _body(receive, self._settings.max_body_bytes)
        except TimeoutError:
            await self._refuse(_too_slow(), "slow", scope, receive, send)
            return
        except _Left:
            return
        if body is None:
            await self._refuse_large(scope, receive, send)
            return
        refusal = self._refusal_of(body, headers, scope["path"]) if body else None
        if refusal is not None:
            await self._refuse(refusal, "json", scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _refusal_of(self, body: bytes, headers: Headers, path: str) -> Response | None:
        content_type, _, parameters = headers.get("content-type", "").partition(";")
        media_type = content_type.strip().lower()
        if media_type == _FORM and path.endswith(_FORM_PATH):
            return _too_large(_FORM_BYTES) if len(body) > _FORM_BYTES else None
        if not (media_type == "application/json" or media_type.endswith("+json")):
            detail = "Send the body as JSON, with 'Content-Type: application/json'."
            return problem(415, "unsupported_media_type", detail)
        if not _names_utf_8(parameters):
            detail = "Send the body in UTF-8; other charsets are not accepted."
            return problem(415, "unsupported_charset", detail)
        if not is_utf_8(body):
            detail = "The body is not UTF-8 text without a byte order mark and NUL bytes."
            return problem(400, "bad_encoding", detail)
        fault = json_fault(body, self._settings.max_json_depth, self._settings.max_json_items)
        return None if fault is None else problem(422, "json_too_complex", fault)

    async def _refuse_large(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = self._settings.max_body_bytes
        # A client that still sends would not see the response if the connection closed.
        with suppress(TimeoutError, _Left):
            async with asyncio.timeout(_DRAIN_SECONDS):
                await _body(receive, most * _DRAINED_TIMES, keep=False)
        await self._refuse(_too_large(most), "body", scope, receive, send)

    async def _refuse(
        self, answer: Response, limit: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._metrics.refused.add(limit=limit)
        await answer(scope, receive, send)


def is_utf_8(body: bytes) -> bool:
    """Whether a JSON parser reads the body as UTF-8, as the limits assume.

    Python's parser guesses UTF-16 and UTF-32 from byte order marks and NUL bytes, which no JSON
    text in UTF-8 has.

    >>> is_utf_8(b'{"a": 1}'), is_utf_8('{"a": 1}'.encode("utf-16-le"))
    (True, False)
    """
    if b"\0" in body or body.startswith(BOM_UTF8):
        return False
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def json_fault(body: bytes, most_depth: int, most_items: int) -> str | None:
    """Return which limit a JSON text in UTF-8 exceeds, found without parsing it; None if none.

    >>> json_fault(b'{"a": ["[[[", 1]}', most_depth=2, most_items=10) is None
    True
    >>> json_fault(b"[[[1]]]", most_depth=2, most_items=10)
    'The body is nested more than 2 levels deep.'
    """
    # An item has at most two strings: a name and a value.
    most_strings = (most_items + 1) * 2
    outside, strings = _STRING.subn(b"", body, count=most_strings + 1)
    items = outside.count(b",") + outside.count(b"[") + outside.count(b"{")
    if items > most_items or strings > most_strings:
        return f"The body has more than {most_items} items."
    if b"0" * (_NUMBER_DIGITS + 1) in outside.translate(_DIGITS_AS_ZERO):
        return f"The body has a number of more than {_NUMBER_DIGITS} digits."
    return _nesting_fault(outside.translate(None, _NOT_BRACKETS), most_depth)


def _nesting_fault(brackets: bytes, most_depth: int) -> str | None:
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket in b"[{" else -1
        if depth > most_depth:
            return f"The body is nested more than {most_depth} levels deep."
        if depth < 0:
            return "The body closes a list or an object that it did not open."
    return None


class _Left(Exception):
    """Raised when the client disconnects before its request is complete."""


def _too_slow() -> Response:
    detail = "The body did not arrive in time."
    return problem(408, "body_too_slow", detail, headers={"Connection": "close"})


def _too_large(most: int) -> Response:
    detail = f"The body is larger than {most} bytes."
    return problem(413, "body_too_large", detail, headers={"Connection": "close"})


def _too_many_parameters() -> Response:
    detail = f"The address has more than {_QUERY_PARAMETERS} query parameters."
    return problem(400, "too_many_parameters", detail)


def _names_utf_8(parameters: str) -> bool:
    """Whether the charset of a Content-Type header is UTF-8 or absent."""
    named = (each.partition("=") for each in parameters.split(";"))
    charsets = [value for name, _, value in named if name.strip().lower() == "charset"]
    return all(value.strip().strip('"').lower() in _UTF_8_NAMES for value in charsets)


def _declared_length(headers: Headers) -> int:
    declared = headers.get("content-length", "0")
    return int(declared) if declared.isascii() and declared.isdigit() else 0


async def _body(receive: Receive, most: int, *, keep: bool = True) -> bytes | None:
    """Read the body; None if it is too large. Without ``keep`` it is read and dropped."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _Left
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > most:
            return None
        if keep:
            chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives the body as one message, then what else comes."""
    given = False

    async def receive_body() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_body


class RateLimit:
    """A token bucket per user, in memory: each process has its own."""

    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}
        self._swept_at = clock.monotonic()

    def take(self, tenant_id: str, user_id: str) -> None:
        """Take a token. Raises ``TooManyError`` if there is none."""
        now = self._clock.monotonic()
        self._sweep(now)
        left, at = self._buckets.get((tenant_id, user_id), (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        if left < 1.0:
            self._buckets[tenant_id, user_id] = (left, now)
            raise TooManyError(
                f"you send more than {self._per_second:g} requests per second; try again later",
                code="rate_limited",
                retry_after=(1.0 - left) / self._per_second,
            )
        self._buckets[tenant_id, user_id] = (left - 1.0, now)

    def _sweep(self, now: float) -> None:
        """Drop full buckets, at most once in the time that an empty one takes to fill."""
        to_fill = self._burst / self._per_second
        if now - self._swept_at < to_fill:
            return
        self._swept_at = now
        self._buckets = {
            who: (left, at) for who, (left, at) in self._buckets.items() if now - at < to_fill
        }

    def __len__(self) -> int:
        """The number of users whose buckets are not full."""
        return len(self._buckets)
