"""The connection under a stream: how it is cut, and how it learns that the server ends.

ASGI can say neither. ``LiveHttpProtocol``, given to uvicorn as ``http=``, adds both; under another
server a cut stream is closed instead of aborted, and ends when the app closes its feeds. It also
limits what clients may do before they have asked for anything.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from starlette.types import Message, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from stepwell.server.settings import ServerSettings

logger = logging.getLogger("stepwell.server")

_KEY = "stepwell_connection"
_REST_BYTES = 2 * 1024 * 1024
_SPARE_CONNECTIONS = 16
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


class SlowReaderError(Exception):
    """Raised when a client has read nothing for too long."""


class ClientConnection:
    """The connection of one client."""

    def __init__(self, abort: Callable[[], None] | None = None) -> None:
        self.is_spare = False
        """Whether it is one beyond the limit, on which only health checks are answered."""
        self.ending = asyncio.Event()
        """Set when the server ends."""
        self._abort = abort

    def abort(self) -> None:
        """Close the connection now and drop what is not sent yet."""
        if self._abort is not None:
            self._abort()


def connection_of(scope: Scope) -> ClientConnection:
    """Return the connection of a request or socket."""
    state = cast("Mapping[str, Any]", scope.get("state") or {})
    found = state.get(_KEY)
    return found if isinstance(found, ClientConnection) else ClientConnection()


async def send_or_cut(send: Send, message: Message, seconds: float) -> None:
    """Send, unless the client takes too long to make room. Raises ``SlowReaderError``."""
    try:
        async with asyncio.timeout(seconds):
            await send(message)
    except TimeoutError:
        raise SlowReaderError(f"the client took nothing for {seconds:g} s") from None


class LiveConnections(asyncio.Protocol):
    """Over one of uvicorn's protocols for HTTP: connections can be cut, and those who ask nothing
    are not waited for for ever. WebSockets begin here as well, so it is enough for them, too.

    What comes while nothing is answered is the head of a request: it has to be complete in time
    and within its size. One connection more than ``max_connections`` costs the one that has asked
    for nothing for the longest; if all are in use, a few more are taken for health checks.
    """

    head_seconds = 10.0
    head_bytes = 64 * 1024
    max_connections: int | None = None
    idle: ClassVar[dict[Any, None]] = {}
    """The connections of this server from which a request is expected, oldest first."""

    app_state: dict[str, Any]
    connections: set[Any]
    cycle: Any
    loop: asyncio.AbstractEventLoop
    transport: Any

    def connection_made(self, transport: Any) -> None:
        """Remember the connection where the app finds it."""
        super().connection_made(transport)
        self._line = ClientConnection(transport.abort)
        self.app_state = {**self.app_state, _KEY: self._line}
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_room: int | None = None
        """How much of a head may still come; None while something else is expected."""
        if self._find_room():
            self._expect_head()
        else:
            transport.abort()

    def _find_room(self) -> bool:
        most = self.max_connections
        if most is None or len(self.connections) <= most:
            return True
        if (oldest := next(iter(self.idle), None)) is not None:
            oldest._expect_nothing()
            oldest.transport.abort()
            return True
        logger.warning("all of %d connections are in use; only health checks are answered", most)
        self._line.is_spare = True
        return len(self.connections) <= most + _SPARE_CONNECTIONS

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass it on, of the head of a request no more than it may have."""
        before = self.cycle
        if before is None or before.response_complete or not before.more_body:
            self._expect_head()
        room = len(data) if self._head_room is None else self._head_room
        super().data_received(data[:room])
        if self.cycle is not before:
            self._expect_nothing()
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if self._head_room is not None:
            self._head_room = room - len(data)
            if self._head_room <= 0:
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()
        elif room < len(data):
            super().data_received(data[room:])

    def handle_websocket_upgrade(self, *request: Any) -> None:
        """From here on it is a socket, with limits of its own."""
        self._expect_nothing()
        cast("Any", super()).handle_websocket_upgrade(*request)

    def shutdown(self) -> None:
        """The server ends: streams end by themselves, or uvicorn would wait for them."""
        self._line.ending.set()
        cast("Any", super()).shutdown()

    def _expect_head(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.abort)
            self.idle[self] = None
        if self._head_room is None:
            # Who was answered early may still send the rest of its body, which nobody keeps.
            has_rest = self.cycle is not None and self.cycle.more_body
            self._head_room = _REST_BYTES if has_rest else self.head_bytes

    def _expect_nothing(self) -> None:
        self._head_room = None
        self.idle.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class LiveHttpProtocol(LiveConnections, AutoHTTPProtocol):
    """The same over the one that uvicorn chooses."""


def live_http_protocol(
    settings: ServerSettings, max_connections: int | None = None
) -> type[LiveHttpProtocol]:
    """The protocol with the patience of these settings for one server, for uvicorn's ``http=``."""
    most = settings.max_connections if max_connections is None else max_connections

    class Protocol(LiveHttpProtocol):
        head_seconds = settings.head_seconds
        max_connections = most
        idle: ClassVar[dict[Any, None]] = {}

    return Protocol
