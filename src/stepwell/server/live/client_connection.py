"""The connection under a stream: aborts it, and signals that the server shuts down.

ASGI can say neither. ``LiveHttpProtocol``, given to uvicorn as ``http=``, adds both; under another
server a cut stream is closed instead of aborted, and ends when the app closes its feeds. It also
limits what clients may do before they have asked for anything.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from starlette.types import Scope
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


class ClientConnection:
    """The connection of one client."""

    def __init__(self, abort: Callable[[], None] | None = None) -> None:
        self.is_spare = False
        """Whether it is beyond the limit, so that it may only do health checks."""
        self.ending = asyncio.Event()
        """Set when the server shuts down."""
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
        """Put the connection where the app finds it."""
        super().connection_made(transport)
        self._line = ClientConnection(transport.abort)
        self.app_state = {**self.app_state, _KEY: self._line}
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_room: int | None = None
        """Bytes that the head may still have; None while no head is expected."""
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
        logger.warning("all %d connections are in use; only health checks get a response", most)
        self._line.is_spare = True
        return len(self.connections) <= most + _SPARE_CONNECTIONS

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for a request."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on, up to the limit of a request's head."""
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
        """Hand the connection over to the socket, which has its own limits."""
        self._expect_nothing()
        cast("Any", super()).handle_websocket_upgrade(*request)

    def shutdown(self) -> None:
        """End the streams, for which uvicorn would wait."""
        self._line.ending.set()
        cast("Any", super()).shutdown()

    def _expect_head(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.abort)
            self.idle[self] = None
        if self._head_room is None:
            # A client that got an early response may still send the rest of its body.
            has_rest = self.cycle is not None and self.cycle.more_body
            self._head_room = _REST_BYTES if has_rest else self.head_bytes

    def _expect_nothing(self) -> None:
        self._head_room = None
        self.idle.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class LiveHttpProtocol(LiveConnections, AutoHTTPProtocol):
    """The same over the protocol that uvicorn chooses."""


def live_http_protocol(
    settings: ServerSettings, max_connections: int | None = None
) -> type[LiveHttpProtocol]:
    """Return the protocol with these settings for one server, for uvicorn's ``http=``."""
    most = settings.max_connections if max_connections is None else max_connections

    class Protocol(LiveHttpProtocol):
        head_seconds = settings.head_seconds
        max_connections = most
        idle: ClassVar[dict[Any, None]] = {}

    return Protocol
