"""Requests to providers over httpx2: one client per event loop, no redirects, no cookies, bounded
bodies, and every fault of the HTTP library turned into a ``ModelError``.
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

from stepwell.errors import ModelError, ModelErrorKind, described

if TYPE_CHECKING:
    import ssl

    import httpx2

LARGEST_BODY = 32 * 1024 * 1024
LARGEST_COMPLAINT = 256 * 1024
SECONDS_TO_COMPLAIN = 5.0
"""How long the body of an error answer is waited for: its status alone says enough."""

SECONDS_TO_DRAIN = 0.1
"""How long the end of a stream is waited for after its last message, so that the connection can
be used again."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OF_THE_LIBRARY = ("content-length", "transfer-encoding")


class HttpCall(Struct, frozen=True, kw_only=True, eq=False):
    """One POST: where to, with what, and how patiently."""

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
    """The head of a response, and its body as it arrives."""

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
        """Whether it says that it is one JSON document."""
        media_type = self.headers.get("content-type", "").partition(";")[0]
        return media_type.strip().lower() == "application/json"

    @property
    def time(self) -> float:
        """Now, on the clock of ``chunk(until=...)``."""
        return asyncio.get_running_loop().time()

    async def chunk(self, *, until: float | None = None) -> bytes | None:
        """The next piece of the body, as it arrives; None if it is over, or if none came in
        time."""
        try:
            piece = await anext(self._pieces, None) if until is None else await self._by(until)
        except _faults() as error:
            _raise(error, self._call, "while the answer was read")
        self._length += 0 if piece is None else len(piece)
        if self._length > LARGEST_BODY:
            raise ModelError(
                f"{self._call.owner} answered with more than {LARGEST_BODY} bytes",
                kind=ModelErrorKind.TOO_LARGE,
                status=self.status,
            )
        return piece

    async def _by(self, time: float) -> bytes | None:
        limit = asyncio.timeout_at(time)
        try:
            async with limit:
                return await anext(self._pieces, None)
        except TimeoutError:
            if limit.expired():
                return None
            raise

    async def body(self) -> bytes:
        """The whole body, if it is not too large."""
        pieces: list[bytes] = []
        while (chunk := await self.chunk()) is not None:
            pieces.append(chunk)
        return b"".join(pieces)

    async def complaint(self) -> bytes:
        """The body of an error answer, as far as it comes."""
        pieces: list[bytes] = []
        until = self.time + SECONDS_TO_COMPLAIN
        with suppress(ModelError):
            while (chunk := await self.chunk(until=until)) and self._length < LARGEST_COMPLAINT:
                pieces.append(chunk)
        return b"".join(pieces)

    async def drain(self) -> None:
        """Read the last bytes, if they are there already."""
        until = self.time + SECONDS_TO_DRAIN
        with suppress(ModelError):
            while await self.chunk(until=until) is not None:
                pass

    async def close(self) -> None:
        """Let go of the connection."""
        with suppress(*_faults()):
            await self._pieces.aclose()
            await self._response.aclose()


async def sent(call: HttpCall) -> HttpReply:
    """The reply to a call, as soon as its head is there. Whoever asked closes it."""
    import httpx2

    for name, value in call.headers.items():
        _refuse_odd(name, value)
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
            f"{call.owner} can't be asked through the client it was given, which is closed or "
            f"belongs to another event loop ({described(error)}); give each event loop an open one",
            kind=ModelErrorKind.INVALID_REQUEST,
        ) from error


_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[httpx2.AsyncClient, object]]" = (
    WeakKeyDictionary()
)


async def _client() -> "httpx2.AsyncClient":
    """The client of the running event loop. It is closed when the loop shuts down its async
    generators, as ``asyncio.run`` does; so nobody has to close a model."""
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
    closer = _closed_with_the_loop(client, ref(loop))
    _clients[loop] = (client, closer)
    await anext(closer)
    return client


def no_cookies() -> CookieJar:
    """A jar that takes no cookies. A client is shared by all users of a process: a cookie kept in
    it would tie the requests of one to those of another."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


@cache
def certificates() -> "ssl.SSLContext":
    """Loaded once, with the HTTP package: for each event loop anew it would take longer than many a
    turn. Who can't wait for it in an event loop calls it in a thread first."""
    import httpx2

    return httpx2.create_ssl_context()


async def _closed_with_the_loop(
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


def _refuse_odd(name: str, value: Any) -> None:
    """What can't stand in a header would otherwise be an error of the library that shows the
    value, which may be secret."""
    if not _HEADER_NAME.fullmatch(name):
        wrong = "has a name that no header can have"
    elif name.lower() in _OF_THE_LIBRARY:
        wrong = "can't be chosen, since it says how the request is sent"
    elif not isinstance(value, str):
        wrong = f"has a {type(value).__name__} as value, not a text"
    elif not value.isascii() or not (value.isprintable() and value == value.strip()):
        wrong = "has a value with line breaks, blanks around it, or letters that are not ASCII"
    else:
        return
    raise ModelError(
        f"the request can't be sent: the header {name!r} {wrong}; correct extra_headers",
        kind=ModelErrorKind.INVALID_REQUEST,
    )


def _raise(error: Exception, call: HttpCall, when: str) -> NoReturn:
    """The same fault as an error of the model. Its text is the library's, which names no header."""
    kind = _kind(error)
    why = "" if kind is ModelErrorKind.TIMEOUT else f": {described(error)}"
    what = _in_words(error, kind, call, when)
    raise ModelError(f"{call.owner} {what} ({call.url}){why}", kind=kind) from error


def _in_words(error: Exception, kind: ModelErrorKind, call: HttpCall, when: str) -> str:
    import httpx2

    match error:
        case httpx2.ConnectTimeout():
            return f"could not be reached for {call.connect_timeout:g} seconds"
        case httpx2.WriteTimeout():
            return f"took nothing of the request for {call.read_timeout:g} seconds"
        case httpx2.TimeoutException():
            return f"sent nothing, {when}, for {call.read_timeout:g} seconds"
        case _ if kind is ModelErrorKind.CONNECT:
            return "could not be reached"
        case _ if kind is ModelErrorKind.INVALID_REQUEST:
            return "can't be asked so"
        case _ if kind is ModelErrorKind.MALFORMED_RESPONSE:
            return "sent what can't be read"
        case _:
            return f"broke off {when}"


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
