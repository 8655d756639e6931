"""Who follows which session in this process.

Per session there is one feed while somebody follows. It keeps the newest events in memory, ready
encoded; who is behind those reads the database at its own pace. So a slow reader costs no memory
here, and slows nobody. Idle followers cost no database work but that of the fallback poll.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.journal.envelope import EnvelopeType
from stepwell.server.live.access_watch import AccessWatch
from stepwell.server.live.cursor import Cursor, TextPosition
from stepwell.server.live.fallback_poll import FallbackPoll
from stepwell.server.live.live_event import LiveEvent
from stepwell.server.live.seats import Seats, WaitingSockets
from stepwell.server.live.session_feed import Reset, SessionFeed
from stepwell.server.settings import ServerSettings
from stepwell.sessions.ports import Store

Item = LiveEvent | Reset

_ENDS_TEXT = (EnvelopeType.STEP_STARTED, EnvelopeType.STREAM_CHUNK, EnvelopeType.STEP_COMPLETED)


class Feeds:
    """The followed sessions. One per process; ``close`` ends all streams."""

    def __init__(self, store: Store, clock: Clock, settings: ServerSettings) -> None:
        self.seats = Seats(settings.live_connections_per_user)
        self.waiting_sockets = WaitingSockets(
            max(1, settings.max_connections // 4), settings.waiting_sockets_per_address
        )
        self.access = AccessWatch(store)
        self._store = store
        self._clock = clock
        self._tail_bytes = settings.live_buffer_bytes
        self._feeds: dict[str, SessionFeed] = {}
        self._poll = FallbackPoll(store, self._feeds)
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def followed(self) -> int:
        """How many sessions are followed."""
        return len(self._feeds)

    @property
    def following(self) -> int:
        """How many follow them."""
        return sum(feed.followers for feed in self._feeds.values())

    async def subscribe(self, session_id: str, after: Cursor | int | None) -> "LiveSubscription":
        """Follow a session from behind that number or cursor on; None for what is new from now on.
        The subscription must be closed."""
        cursor = Cursor(after) if isinstance(after, int) else after
        feed = self._feeds.get(session_id)
        if feed is None:
            feed = self._feeds[session_id] = SessionFeed(
                self._store, self._clock, session_id, self._tail_bytes
            )
            self._poll.start()
        feed.followers += 1
        with ExitStack() as leaving:
            leaving.callback(self.leave, feed)
            if self._is_closed:
                feed.close()
            position, reset = await feed.enter(None if cursor is None else cursor.seq)
            sent = {} if cursor is None or reset else await feed.sent_texts(cursor)
            leaving.pop_all()
        return LiveSubscription(self, feed, FeedPlace(position, reset, sent))

    def leave(self, feed: SessionFeed) -> None:
        """Count one follower less; the last one ends the feed."""
        feed.followers -= 1
        if feed.followers == 0 and self._feeds.get(feed.session_id) is feed:
            del self._feeds[feed.session_id]
            self._leaving.add(feed.reader)
            feed.reader.add_done_callback(self._leaving.discard)
            feed.close()
        if not self._feeds:
            self._poll.stop()

    async def close(self) -> None:
        """End every stream: nobody is sent anything any more."""
        self._is_closed = True
        self._poll.stop()
        readers = [feed.reader for feed in self._feeds.values()]
        for feed in self._feeds.values():
            feed.close()
        await asyncio.gather(*readers, *self._leaving, return_exceptions=True)


class FeedPlace(NamedTuple):
    """Where a follower begins, and what it has of open texts, by execution."""

    position: int
    reset: Reset | None
    sent: dict[str, TextPosition]


class LiveSubscription:
    """One follower of a session, and how far it is."""

    def __init__(self, feeds: Feeds, feed: SessionFeed, place: FeedPlace) -> None:
        self._feeds = feeds
        self._feed = feed
        self._position, self._reset, self._sent = place
        self._is_open = True

    @property
    def position(self) -> int:
        """The number of the newest event that was taken."""
        return self._position

    async def take(self, seconds: float | None = None) -> Sequence[Item] | None:
        """Return what comes next, in order and without a gap, after waiting so long at most: empty
        if nothing came, None when all is over."""
        while True:
            if self._feed.is_over:
                return None
            if self._reset is not None:
                reset, self._reset = self._reset, None
                return [reset]
            batch = self._feed.tail_after(self._position)
            if batch is None:
                batch = await self._read_page()
            if batch:
                return [self._deliver(event) for event in batch]
            if texts := list(self._take_texts()):
                return texts
            if self._reset is None and not await self._feed.has_grown(seconds):
                return []

    def _deliver(self, one: LiveEvent) -> LiveEvent:
        """Go on by an event of the log; of a text that came in part, only its rest is sent."""
        event, self._position = one.event, one.seq
        if event.type in _ENDS_TEXT:
            sent = self._sent.pop(event.execution_id or "", None)
            if sent is not None and event.type == EnvelopeType.STREAM_CHUNK:
                one = LiveEvent(replace(event, payload=_rest(event.payload, sent)))
        return one.at(str(self._cursor)) if self._sent else one

    def _take_texts(self) -> Iterator[LiveEvent]:
        """Go on by what was added to open texts; all of it, where nothing came yet."""
        if self._position > self._feed.position:
            return  # it comes from another server; here its newest entries are not read yet
        for text in self._feed.texts.open:
            sent = self._sent.get(text.execution_id)
            if sent is None or sent.start != text.start:
                sent = TextPosition(text.start, 0, 0)
            if len(text.text) > sent.offset:
                one = text.chunk(self._position, sent.offset, sent.chunks, self._feed.now())
                self._sent[text.execution_id] = TextPosition(
                    text.start, len(text.text), sent.chunks + 1
                )
                yield one.at(str(self._cursor))

    @property
    def _cursor(self) -> Cursor:
        return Cursor(self._position, tuple(self._sent.values()))

    async def _read_page(self) -> Sequence[LiveEvent]:
        page = await self._feed.page_after(self._position)
        if page and page[0].seq == self._position + 1:
            return page
        # What came next was deleted meanwhile.
        _, newest = await self._feed.range()
        self._position, self._reset, self._sent = newest, Reset(newest), {}
        return ()

    async def __aiter__(self) -> AsyncIterator[Item]:
        while (batch := await self.take()) is not None:
            for item in batch:
                yield item

    def close(self) -> None:
        """Follow no more."""
        if self._is_open:
            self._is_open = False
            self._feeds.leave(self._feed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _rest(chunk: Mapping[str, Any], sent: TextPosition) -> Mapping[str, Any]:
    rest = {"content": chunk["content"][sent.offset :], "offset": sent.offset}
    return {**chunk, **rest, "chunk_index": sent.chunks}
