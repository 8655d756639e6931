"""Responses that follow a session as server-sent events, until the client, the server, the access
or the body ends. A client that stops reading is disconnected."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from stepwell.journal.envelope import EnvelopeType
from stepwell.journal.status import BroadcastStatus
from stepwell.server.live.access_watch import until_access_is_lost
from stepwell.server.live.client_connection import ClientConnection, connection_of
from stepwell.server.live.client_presence import ClientPresence
from stepwell.server.live.cursor import Cursor
from stepwell.server.live.seats import count_connection
from stepwell.server.live.session_feed import Item, LiveSubscription, Reset
from stepwell.sessions.errors import NotThereError
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import EventType, Session, StoredEntry

if TYPE_CHECKING:
    from stepwell.server.services import Services

logger = logging.getLogger("stepwell.server")

SSE_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-store",
    "x-accel-buffering": "no",
}
RETRY_MILLISECONDS = 1000
_RETRY = f"retry: {RETRY_MILLISECONDS}\n\n".encode()
KEEP_ALIVE = b": still here\n\n"
_ENDINGS = (
    EventType.EXECUTION_COMPLETED,
    EventType.EXECUTION_FAILED,
    EventType.EXECUTION_CANCELLED,
)

Body = Callable[[LiveSubscription], AsyncGenerator[bytes, None]]


class SlowReaderError(Exception):
    """Raised when a client has read nothing for too long."""


class LiveResponse(Response):
    """Sends what ``body`` yields for a subscription, as fast as the client reads."""

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
        presence: ClientPresence | None = None,
    ) -> None:
        """``seat`` was taken before the request changed anything; without one it is taken here.
        ``presence`` handles a client that disconnects before the end."""
        super().__init__(headers=dict(headers))
        del self.headers["content-length"]
        self._services = services
        self._who = who
        self._session_id = session_id
        self._after = after
        self._body = body
        self._seat = seat
        self._presence = presence
        self._has_left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream. What fails before the first byte is an ordinary error response."""
        if (presence := self._presence) is None:
            await self._serve(scope, receive, send)
            return
        async with presence.announce():
            await self._serve(scope, receive, send)
            if self._has_left:
                await presence.handle_disconnect(connection_of(scope).ending)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
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
                    logger.info("disconnected a stream of session %s: %s", self._session_id, error)
                    line.abort()

    async def _until_the_end(
        self, subscription: LiveSubscription, line: ClientConnection, receive: Receive, send: Send
    ) -> None:
        await first_of(
            self._pump(subscription, send),
            self._wait_for_disconnect(receive),
            line.ending.wait(),
            until_access_is_lost(self._services, self._who, self._session_id),
        )

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        await wait_for_disconnect(receive)
        self._has_left = True

    async def _pump(self, subscription: LiveSubscription, send: Send) -> None:
        async with aclosing(self._body(subscription)) as pieces:
            async for piece in pieces:
                await self._send(send, {"body": piece, "more_body": True})

    async def _send(self, send: Send, message: Message) -> None:
        seconds = self._services.settings.live_cut_seconds
        await send_or_cut(send, {"type": "http.response.body", **message}, seconds)


async def send_or_cut(send: Send, message: Message, seconds: float) -> None:
    """Send, unless the client takes too long to make room. Raises ``SlowReaderError``."""
    try:
        async with asyncio.timeout(seconds):
            await send(message)
    except TimeoutError:
        raise SlowReaderError(f"the client read nothing for {seconds:g} s") from None


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


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed the connection, or has the whole response."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def sse_response(
    services: "Services",
    who: Principal,
    session: Session,
    *,
    after: Cursor,
    execution_id: str | None = None,
) -> LiveResponse:
    """Stream the session after a cursor, up to the end of an execution if one is named. Raises
    ``NotThereError`` if the execution is not in the session."""
    end = None if execution_id is None else _End(services, session, execution_id)
    if end is not None:
        await end.check()

    def body(subscription: LiveSubscription) -> AsyncGenerator[bytes, None]:
        return _sse_body(subscription, end, services.settings.ping_seconds)

    return LiveResponse(services, who, session.id, after=after, body=body, headers=SSE_HEADERS)


def cursor_of(last_event_id: str | None, after: int | None) -> Cursor:
    """Return where to start: Last-Event-ID, which a reconnecting browser sends, or ``after``.

    >>> str(cursor_of("7", 3)), str(cursor_of(None, 3)), str(cursor_of("", None))
    ('7', '3', '0')
    """
    return Cursor.parse(last_event_id) if last_event_id else Cursor(after or 0)


def sse_event(item: Item) -> bytes:
    """Return one event of the stream."""
    if isinstance(item, Reset):
        return b'id: %d\nevent: reset\ndata: {"newest":%d}\n\n' % (item.newest, item.newest)
    head = f"id: {item.cursor}\nevent: {item.event.type}\ndata: ".encode()
    return b"%b%b\n\n" % (head, item.envelope)


async def _sse_body(
    subscription: LiveSubscription, end: "_End | None", ping_seconds: float
) -> AsyncGenerator[bytes, None]:
    yield _RETRY
    if end is not None:
        await end.check()
    while end is None or not end.is_reached(subscription.position):
        batch = await subscription.take(ping_seconds)
        if batch is None:
            return
        if end is not None:
            await end.update(batch)
        yield b"".join(map(sse_event, batch)) or KEEP_ALIVE


class _End:
    """The end of an execution: the number of the newest event when it was over."""

    def __init__(self, services: "Services", session: Session, execution_id: str) -> None:
        self._store = services.store
        self._session_id = session.id
        self._execution_id = execution_id
        self._seq: int | None = None

    def is_reached(self, position: int) -> bool:
        """Whether a follower at this position has all of it."""
        return self._seq is not None and position >= self._seq

    async def check(self) -> None:
        """Check whether it is over. Raises ``NotThereError`` if it is not in this session."""

        async def over(tx: Transaction) -> int | None:
            execution = await tx.execution(self._execution_id)
            if execution is None or execution.session_id != self._session_id:
                raise NotThereError("execution", self._execution_id)
            _, newest = await tx.entry_range(self._session_id)
            return newest if execution.status.is_terminal else None

        self._seq = await self._store.read(over)

    async def update(self, batch: Sequence[Item]) -> None:
        """Check again if an event says that it may be over."""
        if self._seq is None and any(
            isinstance(item, Reset) or is_ending(item.event, self._execution_id) for item in batch
        ):
            await self.check()


def is_ending(event: StoredEntry, execution_id: str) -> bool:
    """Whether the event says that the execution is over."""
    if event.execution_id != execution_id:
        return False
    if event.type != EnvelopeType.AGENT_STATUS:
        return event.type in _ENDINGS
    status = event.payload.get("status")
    return isinstance(status, str) and BroadcastStatus(status).is_terminal
