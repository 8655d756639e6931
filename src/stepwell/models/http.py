"""Requests to providers over httpx2: one client per event loop, no redirects, no cookies, bounded
bodies. Every fault of the HTTP library becomes a ``ModelError``.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary, ref

from msgspec import Struct

from stepwell.errors import ModelError, ModelErrorKind, describe

if TYPE_CHECKING:
    import ssl

    import httpx2

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_ERROR_BODY_BYTES = 256 * 1024
ERROR_BODY_SECONDS = 5.0
"""How long to wait for the body of an error response. Its status alone is often enough."""

DRAIN_SECONDS = 0.1
"""How long to wait for the end of a stream after its last message, so that the connection can be
reused."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_RESERVED_HEADERS = ("content-length", "transfer-encoding")


class HttpCall(Struct, frozen=True, kw_only=True, eq=False):
    """One POST request with its timeouts."""

    owner: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    connect_timeout: float
    read_timeout: float
    client: "httpx2.AsyncClient | None" = None

    def __repr__(self) -> str:
        return f"HttpCall({self.owner}, {self.url})"


class HttpReply:
    """The head of a response, and its body as it arrives. The caller closes it."""

    def __init__(self, response: "httpx2.Response", call: HttpCall) -> None:
        self.status = response.status_code
        self.url = call.url
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._pieces = response.aiter_bytes()
        self._length = 0
        self._call = call

    @property
    def is_whole(self) -> bool:
        """Whether the content type is a single JSON document."""
        media_type = self.headers.get("content-type", "").partition(";")[0]
        return media_type.strip().lower() == "application/json"

    @property
    def time(self) -> float:
        """The current time on the clock of ``chunk(until=...)``."""
        return asyncio.get_running_loop().time()

    async def chunk(self, *, until: float | None = None) -> bytes | None:
        """Return the next chunk of the body, or None at its end or if none arrived in time."""
        try:
            piece = (
                await anext(self._pieces, None) if until is None else await self._chunk_until(until)
            )
        except _faults() as error:
            _raise(error, self._call, "while the answer was read")
        self._length += 0 if piece is None else len(piece)
        if self._length > MAX_BODY_BYTES:
            raise ModelError(
                f"{self._call.owner} sent a response of more than {MAX_BODY_BYTES} bytes",
                kind=ModelErrorKind.TOO_LARGE,
                status=self.status,
            )
        return piece

    async def _chunk_until(self, time: float) -> bytes | None:
        limit = asyncio.timeout_at(time)
        try:
            async with limit:
                return await anext(self._pieces, None)
        except TimeoutError:
            if limit.expired():
                return None
            raise

    async def body(self) -> bytes:
        """Read the whole body. Raises ``ModelError`` if it is too large."""
        pieces: list[bytes] = []
        while (chunk := await self.chunk()) is not None:
            pieces.append(chunk)
        return b"".join(pieces)

    async def error_body(self) -> bytes:
        """Read as much of an error response's body as arrives in time."""
        pieces: list[bytes] = []
        until = self.time + ERROR_BODY_SECONDS
        with suppress(ModelError):
            while (chunk := await self.chunk(until=until)) and self._length < MAX_ERROR_BODY_BYTES:
                pieces.append(chunk)
        return b"".join(pieces)

    async def drain(self) -> None:
        """Read the last bytes if they have arrived already."""
        until = self.time + DRAIN_SECONDS
        with suppress(ModelError):
            while await self.chunk(until=until) is not None:
                pass

    async def close(self) -> None:
        """Release the connection."""
        with suppress(*_faults()):
            await self._pieces.aclose()
            await self._response.aclose()


async def send(call: HttpCall) -> HttpReply:
    """Send a request and return the reply as soon as its head arrives. The caller closes it."""
    import httpx2

    for name, value in call.headers.items():
        _check_header(name, value)
    client = call.client or await _client()
    timeout = httpx2.Timeout(call.read_timeout, connect=call.connect_timeout, pool=None)
    try:
        request = client.build_request(
            "POST", call.url, content=call.body, headers=dict(call.headers), timeout=timeout
        )
        return HttpReply(
            await client.send(request, stream=True, follow_redirects=False, auth=None), call
        )
    except _faults() as error:
        _raise(error, call, "before it answered")
    except RuntimeError as error:
        if call.client is None:
            raise
        raise ModelError(
            f"{call.owner} can't use the client it was given: it is closed or belongs to another "
            f"event loop ({describe(error)}); pass an open client per event loop",
            kind=ModelErrorKind.INVALID_REQUEST,
        ) from error


_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[httpx2.AsyncClient, object]]" = (
    WeakKeyDictionary()
)


async def _client() -> "httpx2.AsyncClient":
    """Return the client of the running event loop. It is closed when the loop shuts down its async
    generators, as ``asyncio.run`` does, so models need no closing."""
    loop = asyncio.get_running_loop()
    known = _clients.get(loop)
    if known is not None and not known[0].is_closed:
        return known[0]
    import httpx2

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    client = httpx2.AsyncClient(
        limits=limits,
        headers={"user-agent": "stepwell"},
        verify=certificates(),
        cookies=no_cookies(),
    )
    closer = _close_with_loop(client, ref(loop))
    _clients[loop] = (client, closer)
    await anext(closer)
    return client


def no_cookies() -> CookieJar:
    """Return a jar that accepts no cookies. All users of a process share a client, and a cookie
    would link their requests."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


@cache
def certificates() -> "ssl.SSLContext":
    """Load the certificates once per process, since it takes longer than many turns. To keep it off
    the event loop, call this in a thread first."""
    import httpx2

    return httpx2.create_ssl_context()


async def _close_with_loop(
    client: "httpx2.AsyncClient", loop: "ref[asyncio.AbstractEventLoop]"
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if (living := loop()) is not None:
            _clients.pop(living, None)
        await client.aclose()


def _faults() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError)


def _check_header(name: str, value: Any) -> None:
    """Refuse invalid headers here. The HTTP library's error would show the value, which may be
    secret."""
    if not _HEADER_NAME.fullmatch(name):
        wrong = "has an invalid name"
    elif name.lower() in _RESERVED_HEADERS:
        wrong = "is reserved for the HTTP library"
    elif not isinstance(value, str):
        wrong = f"has a value of type {type(value).__name__}, not str"
    elif not value.isascii() or not (value.isprintable() and value == value.strip()):
        wrong = "has a value with line breaks, surrounding spaces or non-ASCII characters"
    else:
        return
    raise ModelError(
        f"the request can't be sent: the header {name!r} {wrong}; correct extra_headers",
        kind=ModelErrorKind.INVALID_REQUEST,
    )


def _raise(error: Exception, call: HttpCall, when: str) -> NoReturn:
    """Raise a fault as a ``ModelError``. The library's text names no header."""
    kind = _kind(error)
    why = "" if kind is ModelErrorKind.TIMEOUT else f": {describe(error)}"
    what = _describe_fault(error, kind, call, when)
    raise ModelError(f"{call.owner} {what} ({call.url}){why}", kind=kind) from error


def _describe_fault(error: Exception, kind: ModelErrorKind, call: HttpCall, when: str) -> str:
    import httpx2

    match error:
        case httpx2.ConnectTimeout():
            return f"could not be reached for {call.connect_timeout:g} seconds"
        case httpx2.WriteTimeout():
            return f"accepted no data of the request for {call.read_timeout:g} seconds"
        case httpx2.TimeoutException():
            return f"sent nothing, {when}, for {call.read_timeout:g} seconds"
        case _ if kind is ModelErrorKind.CONNECT:
            return "could not be reached"
        case _ if kind is ModelErrorKind.INVALID_REQUEST:
            return "can't receive this request"
        case _ if kind is ModelErrorKind.MALFORMED_RESPONSE:
            return "sent a response that can't be decoded"
        case _:
            return f"closed the connection {when}"


def _kind(error: Exception) -> ModelErrorKind:
    import httpx2

    match error:
        case httpx2.TimeoutException():
            return ModelErrorKind.TIMEOUT
        case httpx2.ConnectError() | httpx2.ProxyError():
            return ModelErrorKind.CONNECT
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol() | httpx2.LocalProtocolError():
            return ModelErrorKind.INVALID_REQUEST
        case httpx2.DecodingError():
            return ModelErrorKind.MALFORMED_RESPONSE
        case UnicodeError():
            return ModelErrorKind.INVALID_REQUEST
        case _:
            return ModelErrorKind.DISCONNECTED
