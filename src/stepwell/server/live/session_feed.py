"""The log of one session, read once for all who follow it in this process."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from msgspec import Struct

from stepwell.clock import Clock
from stepwell.protocols.client_stream import json_bytes
from stepwell.sessions.bus import Subscription
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.log import envelope_of
from stepwell.sessions.ports import Store, Transaction, session_topic
from stepwell.sessions.records import LoggedEvent

logger = logging.getLogger("stepwell.server")

PAGE = 500
"""Events that are read at once."""
REPLAY_PAGE = 200
"""Events that are read at once by a follower who is behind."""
BATCH_BYTES = 64 * 1024
"""How much is taken at once, unless a single event is larger."""
RETRY_SECONDS = 0.5
"""How long to wait for a database that does not answer."""

Result = TypeVar("Result")


class LiveEvent:
    """An event with its envelope as JSON, encoded once for all followers."""

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


class SessionFeed:
    """The newest events of one session, without gaps, and who waits for more.

    It reads when the bus says that there is news, and otherwise not at all.
    """

    def __init__(self, store: Store, clock: Clock, session_id: str, tail_bytes: int) -> None:
        self.session_id = session_id
        self.followers = 0
        self.is_over = False
        self.position = 0
        """The number of the newest event that was read."""
        self._store = store
        self._clock = clock
        self._tail: deque[LiveEvent] = deque()
        self._tail_bytes = 0
        self._max_bytes = tail_bytes
        self._news: Subscription | None = None
        self._grown = asyncio.Event()
        self._started = asyncio.Event()
        self.reader = asyncio.create_task(self._keep_reading(), name=f"feed {session_id}")
        self.reader.add_done_callback(self._handle_end)

    def close(self) -> None:
        """Read no more, and let nobody wait any longer."""
        self.is_over = True
        self.reader.cancel()
        self._wake_followers()

    def wake(self) -> None:
        """Read on: the log has grown."""
        if self._news is not None:
            self._news.wake()

    async def enter(self, after: int | None) -> tuple[int, Reset | None]:
        """Return where a follower begins that wants what is behind a number, and a reset if that
        is gone."""
        await self._started.wait()
        self._raise_fault()
        if after is None:
            return self.position, None
        if self._tail and self._tail[0].seq <= after + 1 <= self.position + 1:
            return after, None
        oldest, newest = await self._store.read(lambda tx: tx.event_range(self.session_id))
        return (after, None) if oldest - 1 <= after <= newest else (newest, Reset(newest))

    def tail_after(self, position: int) -> Sequence[LiveEvent] | None:
        """Return the next ones behind a number; None if they are not in memory any more."""
        count = self.position - position
        if count <= 0:
            return ()
        if count > len(self._tail):
            return None
        return _batch(islice(self._tail, len(self._tail) - count, None))

    async def page_after(self, position: int) -> Sequence[LiveEvent]:
        """Read the next ones behind a number from the database."""
        events = await self._read(
            lambda tx: tx.events_after(self.session_id, position, limit=REPLAY_PAGE)
        )
        return _batch(LiveEvent(event) for event in events)

    async def range(self) -> tuple[int, int]:
        """Read the oldest number and the newest."""
        return await self._read(lambda tx: tx.event_range(self.session_id))

    async def has_grown(self, seconds: float | None) -> bool:
        """Wait for more, at most so long. Return whether there is any."""
        try:
            async with asyncio.timeout(seconds):
                await self._grown.wait()
        except TimeoutError:
            return False
        self._raise_fault()
        return True

    async def _keep_reading(self) -> None:
        async with self._store.bus.subscribe(session_topic(self.session_id)) as news:
            self._news = news
            _, self.position = await self.range()
            self._started.set()
            while True:
                events = await self._read(
                    lambda tx: tx.events_after(self.session_id, self.position, limit=PAGE)
                )
                if events:
                    self._add(events)
                if len(events) < PAGE:
                    await news.wait(None)

    def _add(self, events: Sequence[LoggedEvent]) -> None:
        if events[0].seq != self.position + 1:  # deleted meanwhile: who is behind starts over
            self._tail.clear()
            self._tail_bytes = 0
        for event in events:
            one = LiveEvent(event)
            self._tail.append(one)
            self._tail_bytes += len(one.envelope)
        while self._tail_bytes > self._max_bytes:
            self._tail_bytes -= len(self._tail.popleft().envelope)
        self.position = events[-1].seq
        self._wake_followers()

    async def _read(self, work: Callable[[Transaction], Awaitable[Result]]) -> Result:
        """Read, however long the database is away."""
        while True:
            try:
                return await self._store.read(work)
            except StoreUnavailableError as error:
                logger.warning("the log of session %s can't be read: %s", self.session_id, error)
            await self._clock.sleep(RETRY_SECONDS)

    def _wake_followers(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    def _raise_fault(self) -> None:
        if self.reader.done() and not self.reader.cancelled():
            self.reader.result()

    def _handle_end(self, reader: asyncio.Task[None]) -> None:
        if not reader.cancelled() and (fault := reader.exception()) is not None:
            logger.error("the reader of session %s broke", self.session_id, exc_info=fault)
        self._started.set()
        self._wake_followers()


def _batch(events: Iterable[LiveEvent]) -> list[LiveEvent]:
    batch: list[LiveEvent] = []
    size = 0
    for one in events:
        size += len(one.envelope)
        if batch and size > BATCH_BYTES:
            break
        batch.append(one)
    return batch
