"""A response that follows a session until its client, the server, the access or the body ends. A
client that stops reading is disconnected."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from stepwell.server.live.access_watch import until_access_is_lost
from stepwell.server.live.client_connection import (
    ClientConnection,
    SlowReaderError,
    connection_of,
    send_or_cut,
)
from stepwell.server.live.cursor import Cursor
from stepwell.server.live.feed import LiveSubscription
from stepwell.server.live.seats import count_connection
from stepwell.sessions.principal import Principal

if TYPE_CHECKING:
    from stepwell.server.services import Services

logger = logging.getLogger("stepwell.server")

Body = Callable[[LiveSubscription], AsyncGenerator[bytes, None]]


class LiveResponse(Response):
    """Sends what ``body`` makes of a subscription, as fast as the client reads it."""

    def __init__(
        self,
        services: "Services",
        who: Principal,
        session_id: str,
        *,
        after: Cursor | int,
        body: Body,
        headers: Mapping[str, str],
        seat: ExitStack | None = None,
    ) -> None:
        """``seat`` was taken before the request changed anything; without one it is taken here."""
        super().__init__(headers=dict(headers))
        del self.headers["content-length"]
        self._services = services
        self._who = who
        self._session_id = session_id
        self._after = after
        self._body = body
        self._seat = seat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream. What fails before the first byte is an ordinary error response."""
        feeds, line = self._services.feeds, connection_of(scope)
        seat = self._seat or feeds.seats.hold(self._who)
        with seat, count_connection(self._services.metrics, "stream"):
            async with await feeds.subscribe(self._session_id, self._after) as subscription:
                start = {"status": self.status_code, "headers": self.raw_headers}
                await send({"type": "http.response.start", **start})
                try:
                    await self._until_the_end(subscription, line, receive, send)
                    await self._send(send, {"body": b"", "more_body": False})
                except SlowReaderError as error:
                    logger.info("a stream of session %s is cut: %s", self._session_id, error)
                    line.abort()

    async def _until_the_end(
        self, subscription: LiveSubscription, line: ClientConnection, receive: Receive, send: Send
    ) -> None:
        await first_of(
            self._pump(subscription, send),
            _wait_for_disconnect(receive),
            line.ending.wait(),
            until_access_is_lost(self._services, self._who, self._session_id),
        )

    async def _pump(self, subscription: LiveSubscription, send: Send) -> None:
        async with aclosing(self._body(subscription)) as pieces:
            async for piece in pieces:
                await self._send(send, {"body": piece, "more_body": True})

    async def _send(self, send: Send, message: Message) -> None:
        seconds = self._services.settings.live_cut_seconds
        await send_or_cut(send, {"type": "http.response.body", **message}, seconds)


async def first_of(*waiting: Coroutine[Any, Any, object]) -> None:
    """Run all until one ends, cancel the others, and raise what that one raised."""
    tasks = [asyncio.create_task(one) for one in waiting]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
