"""The log of a session as server-sent events, from a cursor on."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from stepwell.journal.envelope import EnvelopeType
from stepwell.journal.status import BroadcastStatus
from stepwell.server.live.cursor import Cursor
from stepwell.server.live.feed import Item, LiveSubscription, Reset
from stepwell.server.live.response import LiveResponse
from stepwell.sessions.errors import NotThereError
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import EventType, Session, StoredEntry

if TYPE_CHECKING:
    from stepwell.server.services import Services

SSE_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-store",
    "x-accel-buffering": "no",
}
RETRY_MILLISECONDS = 1000
_OPENED = f"retry: {RETRY_MILLISECONDS}\n\n".encode()
KEEP_ALIVE = b": still here\n\n"
_ENDINGS = (
    EventType.EXECUTION_COMPLETED,
    EventType.EXECUTION_FAILED,
    EventType.EXECUTION_CANCELLED,
)


async def sse_response(
    services: "Services",
    who: Principal,
    session: Session,
    *,
    after: Cursor,
    execution_id: str | None = None,
) -> LiveResponse:
    """What happens in the session behind a number, up to the end of an execution if one is named,
    else as long as the client stays. Raises ``NotThereError`` if it is none of the session."""
    end = None if execution_id is None else _End(services, session, execution_id)
    if end is not None:
        await end.look()

    def body(subscription: LiveSubscription) -> AsyncGenerator[bytes, None]:
        return _sse_body(subscription, end, services.settings.ping_seconds)

    return LiveResponse(services, who, session.id, after=after, body=body, headers=SSE_HEADERS)


def cursor_of(last_event_id: str | None, after: int | None) -> Cursor:
    """Where to begin: what the client had last, which a browser says when it comes again.

    >>> str(cursor_of("7", 3)), str(cursor_of(None, 3)), str(cursor_of("", None))
    ('7', '3', '0')
    """
    return Cursor.parse(last_event_id) if last_event_id else Cursor(after or 0)


def sse_event(item: Item) -> bytes:
    """One event of the stream."""
    if isinstance(item, Reset):
        return b'id: %d\nevent: reset\ndata: {"newest":%d}\n\n' % (item.newest, item.newest)
    head = f"id: {item.cursor}\nevent: {item.event.type}\ndata: ".encode()
    return b"%b%b\n\n" % (head, item.envelope)


async def _sse_body(
    subscription: LiveSubscription, end: "_End | None", ping_seconds: float
) -> AsyncGenerator[bytes, None]:
    yield _OPENED
    if end is not None:
        await end.look()
    while end is None or not end.is_reached(subscription.position):
        batch = await subscription.take(ping_seconds)
        if batch is None:
            return
        if end is not None:
            await end.hear(batch)
        yield b"".join(map(sse_event, batch)) or KEEP_ALIVE


class _End:
    """The end of an execution: the number of the newest event once it is over."""

    def __init__(self, services: "Services", session: Session, execution_id: str) -> None:
        self._store = services.store
        self._session_id = session.id
        self._execution_id = execution_id
        self._seq: int | None = None

    def is_reached(self, position: int) -> bool:
        """Whether a follower who is so far has heard all of it."""
        return self._seq is not None and position >= self._seq

    async def look(self) -> None:
        """Whether it is over by now. Raises ``NotThereError`` if it is none of this session."""

        async def over(tx: Transaction) -> int | None:
            execution = await tx.execution(self._execution_id)
            if execution is None or execution.session_id != self._session_id:
                raise NotThereError("execution", self._execution_id)
            _, newest = await tx.entry_range(self._session_id)
            return newest if execution.status.is_terminal else None

        self._seq = await self._store.read(over)

    async def hear(self, batch: Sequence[Item]) -> None:
        """Look again when an event says that it may be over."""
        if self._seq is None and any(
            isinstance(item, Reset) or is_ending(item.event, self._execution_id) for item in batch
        ):
            await self.look()


def is_ending(event: StoredEntry, execution_id: str) -> bool:
    """Whether it tells that the execution is over."""
    if event.execution_id != execution_id:
        return False
    if event.type != EnvelopeType.STATUS:
        return event.type in _ENDINGS
    status = event.payload.get("status")
    return isinstance(status, str) and BroadcastStatus(status).is_terminal
