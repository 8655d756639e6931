"""The event logs of sessions, read once for all who follow them.

Per session there is one reader while somebody follows. It keeps the newest events in memory, ready
encoded; who is behind those reads the database at its own pace. So a slow reader costs no memory
here, and slows nobody.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

from msgspec import Struct

from stepwell.broadcasting.client_stream import json_bytes
from stepwell.clock import Clock
from stepwell.server.live.seats import Seats, WaitingSockets
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.log import envelope_of
from stepwell.sessions.ports import Store, Transaction, session_topic
from stepwell.sessions.records import LoggedEvent

logger = logging.getLogger("stepwell.server")

PAGE = 500
"""So many events are read at once."""
REPLAY_PAGE = 200
"""So many by a follower who is behind."""
BATCH_BYTES = 64 * 1024
"""So much is taken at once, unless a single event is larger."""
LOOK_SECONDS = 0.25
"""How often a log is looked at when the bus does not reach other processes."""
LOOK_ANYWAY_SECONDS = 2.0
"""How often otherwise: a bus may lose what it is told."""
RETRY_SECONDS = 0.5
"""How long to wait for a database that does not answer."""

Result = TypeVar("Result")


class LiveEvent:
    """An event with its envelope as JSON, encoded once for all who are told it."""

    __slots__ = ("envelope", "event", "frame")

    def __init__(self, event: LoggedEvent) -> None:
        self.event = event
        self.envelope = json_bytes(envelope_of(event))
        self.frame: str | None = None
        """As it goes through a Pusher socket, once somebody needed it so."""

    @property
    def seq(self) -> int:
        """Its number in the log."""
        return self.event.seq


class Reset(Struct, frozen=True):
    """The cursor is gone: fetch the session again; the stream goes on behind ``newest``."""

    newest: int


Item = LiveEvent | Reset


class Feeds:
    """Who follows which session. One per process; ``close`` ends all streams."""

    def __init__(self, store: Store, clock: Clock, settings: ServerSettings) -> None:
        self.seats = Seats(settings.live_connections_per_user)
        self.waiting_sockets = WaitingSockets(
            max(1, settings.max_connections // 4), settings.waiting_sockets_per_address
        )
        self._store = store
        self._clock = clock
        self._tail_bytes = settings.live_buffer_bytes
        self._feeds: dict[str, _SessionFeed] = {}
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

    async def subscribe(self, session_id: str, after: int | None) -> "LiveSubscription":
        """Follow a session from behind that number on; None for what is new from now on. The
        subscription must be closed."""
        feed = self._feeds.get(session_id)
        if feed is None:
            feed = self._feeds[session_id] = _SessionFeed(
                self._store, self._clock, session_id, self._tail_bytes
            )
        feed.followers += 1
        with ExitStack() as leaving:
            leaving.callback(self.leave, feed)
            if self._is_closed:
                feed.close()
            position, reset = await feed.entered(after)
            leaving.pop_all()
        return LiveSubscription(self, feed, position, reset)

    def leave(self, feed: "_SessionFeed") -> None:
        """One follower less; the last one lets the reader end."""
        feed.followers -= 1
        if feed.followers == 0 and self._feeds.get(feed.session_id) is feed:
            del self._feeds[feed.session_id]
            self._leaving.add(feed.reader)
            feed.reader.add_done_callback(self._leaving.discard)
            feed.close()

    async def close(self) -> None:
        """End every stream: nobody is told anything any more."""
        self._is_closed = True
        readers = [feed.reader for feed in self._feeds.values()]
        for feed in self._feeds.values():
            feed.close()
        await asyncio.gather(*readers, *self._leaving, return_exceptions=True)


class LiveSubscription:
    """One follower of a session, and how far it is."""

    def __init__(
        self, feeds: Feeds, feed: "_SessionFeed", position: int, reset: Reset | None
    ) -> None:
        self._feeds = feeds
        self._feed = feed
        self._position = position
        self._reset = reset
        self._is_open = True

    @property
    def position(self) -> int:
        """The number of the newest event that was taken."""
        return self._position

    async def take(self, seconds: float | None = None) -> Sequence[Item] | None:
        """What comes next, in order and without a gap, after waiting so long at most: empty if
        nothing came, None when all is over."""
        while True:
            if self._feed.is_over:
                return None
            if self._reset is not None:
                told, self._reset = self._reset, None
                return [told]
            batch = self._feed.tail_after(self._position)
            if batch is None:
                batch = await self._from_database()
            if batch:
                self._position = batch[-1].seq
                return batch
            if self._reset is None and not await self._feed.has_grown(seconds):
                return []

    async def _from_database(self) -> Sequence[LiveEvent]:
        page = await self._feed.page_after(self._position)
        if page and page[0].seq == self._position + 1:
            return page
        # What came next was deleted meanwhile.
        _, newest = await self._feed.range()
        self._position, self._reset = newest, Reset(newest)
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


class _SessionFeed:
    """The log of one session: its newest events, without gaps, and who waits for more."""

    def __init__(self, store: Store, clock: Clock, session_id: str, tail_bytes: int) -> None:
        self.session_id = session_id
        self.followers = 0
        self.is_over = False
        self._store = store
        self._clock = clock
        self._position = 0
        self._tail: deque[LiveEvent] = deque()
        self._tail_bytes = 0
        self._most_bytes = tail_bytes
        self._grown = asyncio.Event()
        self._begun = asyncio.Event()
        self.reader = asyncio.create_task(self._read_on(), name=f"feed {session_id}")
        self.reader.add_done_callback(self._ended)

    def close(self) -> None:
        """No more is read, and nobody waits any longer."""
        self.is_over = True
        self.reader.cancel()
        self._wake()

    async def entered(self, after: int | None) -> tuple[int, Reset | None]:
        """Where a follower begins that wants what is behind a number; a reset if that is gone."""
        await self._begun.wait()
        self._raise_fault()
        if after is None:
            return self._position, None
        if self._tail and self._tail[0].seq <= after + 1 <= self._position + 1:
            return after, None
        oldest, newest = await self._store.read(lambda tx: tx.event_range(self.session_id))
        return (after, None) if oldest - 1 <= after <= newest else (newest, Reset(newest))

    def tail_after(self, position: int) -> Sequence[LiveEvent] | None:
        """The next ones behind a number; None if they are not in memory any more."""
        count = self._position - position
        if count <= 0:
            return ()
        if count > len(self._tail):
            return None
        return _batch(islice(self._tail, len(self._tail) - count, None))

    async def page_after(self, position: int) -> Sequence[LiveEvent]:
        """The next ones behind a number, from the database."""
        events = await self._patiently(
            lambda tx: tx.events_after(self.session_id, position, limit=REPLAY_PAGE)
        )
        return _batch(LiveEvent(event) for event in events)

    async def range(self) -> tuple[int, int]:
        """The oldest number and the newest."""
        return await self._patiently(lambda tx: tx.event_range(self.session_id))

    async def has_grown(self, seconds: float | None) -> bool:
        """Waits for more; whether there is any."""
        try:
            async with asyncio.timeout(seconds):
                await self._grown.wait()
        except TimeoutError:
            return False
        self._raise_fault()
        return True

    async def _read_on(self) -> None:
        bus = self._store.bus
        pause = LOOK_ANYWAY_SECONDS if bus.reaches_all else LOOK_SECONDS
        async with bus.subscribe(session_topic(self.session_id)) as news:
            _, self._position = await self.range()
            self._begun.set()
            while True:
                events = await self._patiently(
                    lambda tx: tx.events_after(self.session_id, self._position, limit=PAGE)
                )
                if events:
                    self._add(events)
                if len(events) < PAGE:
                    await news.wait(pause)

    def _add(self, events: Sequence[LoggedEvent]) -> None:
        if events[0].seq != self._position + 1:  # deleted meanwhile: who is behind starts over
            self._tail.clear()
            self._tail_bytes = 0
        for event in events:
            one = LiveEvent(event)
            self._tail.append(one)
            self._tail_bytes += len(one.envelope)
        while self._tail_bytes > self._most_bytes:
            self._tail_bytes -= len(self._tail.popleft().envelope)
        self._position = events[-1].seq
        self._wake()

    async def _patiently(self, work: Callable[[Transaction], Awaitable[Result]]) -> Result:
        """Read, however long the database is away."""
        while True:
            try:
                return await self._store.read(work)
            except StoreUnavailableError as error:
                logger.warning("the log of session %s can't be read: %s", self.session_id, error)
            await self._clock.sleep(RETRY_SECONDS)

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    def _raise_fault(self) -> None:
        if self.reader.done() and not self.reader.cancelled():
            self.reader.result()

    def _ended(self, reader: asyncio.Task[None]) -> None:
        if not reader.cancelled() and (fault := reader.exception()) is not None:
            logger.error("the reader of session %s broke", self.session_id, exc_info=fault)
        self._begun.set()
        self._wake()


def _batch(events: Iterable[LiveEvent]) -> list[LiveEvent]:
    batch: list[LiveEvent] = []
    size = 0
    for one in events:
        size += len(one.envelope)
        if batch and size > BATCH_BYTES:
            break
        batch.append(one)
    return batch
