"""Requests to providers over httpx2: one client per event loop, no redirects, bounded bodies, and
every fault of the HTTP library turned into a ``ModelError``.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakKeyDictionary

from msgspec import Struct

from stepwell.errors import ModelError, ModelErrorKind, described

if TYPE_CHECKING:
    import httpx2

LARGEST_BODY = 32 * 1024 * 1024
SECONDS_TO_DRAIN = 0.1
"""How long the end of a stream is waited for after its last message, so that the connection can
be used again."""


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
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._call = call

    @property
    def is_whole(self) -> bool:
        """Whether it says that it is one JSON document."""
        media_type = self.headers.get("content-type", "").partition(";")[0]
        return media_type.strip().lower() == "application/json"

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which it arrives."""
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except _faults() as error:
            _raise(error, self._call, "while the answer was read")

    async def body(self) -> bytes:
        """The whole body, if it is not too large."""
        pieces: list[bytes] = []
        length = 0
        async for chunk in self.chunks():
            length += len(chunk)
            if length > LARGEST_BODY:
                raise ModelError(
                    f"{self._call.owner} answered with more than {LARGEST_BODY} bytes",
                    kind=ModelErrorKind.TOO_LARGE,
                    status=self.status,
                )
            pieces.append(chunk)
        return b"".join(pieces)

    async def drain(self) -> None:
        """Read the last bytes, if they are there already."""
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(SECONDS_TO_DRAIN):
                async for _ in self.chunks():
                    pass

    async def close(self) -> None:
        """Let go of the connection."""
        with suppress(*_faults()):
            await self._response.aclose()


async def sent(call: HttpCall) -> HttpReply:
    """The reply to a call, as soon as its head is there. Whoever asked closes it."""
    import httpx2

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
    client = httpx2.AsyncClient(limits=limits, headers={"user-agent": "stepwell"})
    closer = _closed_with_the_loop(client, loop)
    _clients[loop] = (client, closer)
    await anext(closer)
    return client


async def _closed_with_the_loop(
    client: "httpx2.AsyncClient", loop: asyncio.AbstractEventLoop
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _clients.pop(loop, None)
        await client.aclose()


def _faults() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError)


def _raise(error: Exception, call: HttpCall, when: str) -> NoReturn:
    """The same fault as an error of the model. Its text is the library's, which names no header."""
    kind = _kind(error)
    if kind is ModelErrorKind.TIMEOUT:
        import httpx2

        to_connect = isinstance(error, httpx2.ConnectTimeout)
        seconds = call.connect_timeout if to_connect else call.read_timeout
        what = "could not be reached" if to_connect else f"sent nothing, {when},"
        raise ModelError(
            f"{call.owner} {what} for {seconds:g} seconds ({call.url})", kind=kind
        ) from error
    verb = "could not be reached" if kind is ModelErrorKind.CONNECT else f"broke off {when}"
    raise ModelError(f"{call.owner} {verb} ({call.url}): {described(error)}", kind=kind) from error


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
