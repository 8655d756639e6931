"""The connection under a stream: how it is cut, and how it learns that the server ends.

ASGI can say neither. ``LiveHttpProtocol``, given to uvicorn as ``http=``, adds both; under another
server a cut stream is closed instead of aborted, and ends when the app closes its feeds.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from starlette.types import Message, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

_KEY = "stepwell_line"


class SlowReaderError(Exception):
    """A client took nothing of what it was sent for too long."""


class Line:
    """What is known of a connection."""

    def __init__(self, abort: Callable[[], None] | None = None) -> None:
        self.ending = asyncio.Event()
        """Set when the server ends."""
        self._abort = abort

    def abort(self) -> None:
        """End the connection now, and forget what it was not sent yet."""
        if self._abort is not None:
            self._abort()


def line_of(scope: Scope) -> Line:
    """The connection of a request or socket."""
    state = cast("Mapping[str, Any]", scope.get("state") or {})
    found = state.get(_KEY)
    return found if isinstance(found, Line) else Line()


async def send_or_cut(send: Send, message: Message, seconds: float) -> None:
    """Send, unless the client takes too long to make room. Raises ``SlowReaderError``."""
    try:
        async with asyncio.timeout(seconds):
            await send(message)
    except TimeoutError:
        raise SlowReaderError(f"the client took nothing for {seconds:g} s") from None


class LiveHttpProtocol(AutoHTTPProtocol):
    """uvicorn's protocol for HTTP, whose connections can be cut. WebSockets begin here as well, so
    it is enough for them, too."""

    app_state: dict[str, Any]

    def connection_made(self, transport: Any) -> None:
        """Remember the connection where the app finds it."""
        super().connection_made(transport)
        self._line = Line(transport.abort)
        self.app_state = {**self.app_state, _KEY: self._line}

    def shutdown(self) -> None:
        """The server ends: streams end by themselves, or uvicorn would wait for them."""
        self._line.ending.set()
        cast("Any", super()).shutdown()
