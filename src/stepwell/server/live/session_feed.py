"""Reads the journal and the streamed text of one session once for all its followers in this
process."""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.journal.envelope import EnvelopeType
from stepwell.journal.status import ExecutionStatus
from stepwell.server.live.cursor import Cursor, TextPosition
from stepwell.server.live.live_event import EventTail, LiveEvent, batch_of
from stepwell.server.live.streamed_text import StreamedTexts
from stepwell.sessions.bus import BusSubscription, Delta
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store, Transaction, session_topic
from stepwell.sessions.records import StoredEntry

logger = logging.getLogger("stepwell.server")

PAGE = 500
"""Events per read."""
REPLAY_PAGE = 200
"""Events per read for a follower that is behind."""
LOOK_BACK = 200
"""Events that are searched for open steps when the first follower comes."""
FILL_SECONDS = 1.0
"""Seconds between reads of stored text, when some is missing on the bus."""
RETRY_SECONDS = 0.5
"""Seconds between retries when the database does not respond."""

_ENDS_TEXT = (
    EnvelopeType.AGENT_STEP_STARTED,
    EnvelopeType.AGENT_STREAM_CHUNK,
    EnvelopeType.AGENT_STEP_COMPLETED,
)

Result = TypeVar("Result")


class Reset(Struct, frozen=True):
    """The cursor is too old: fetch the session again; the stream continues after ``newest``."""

    newest: int


Item = LiveEvent | Reset


class SessionFeed:
    """The newest events of one session, without gaps, for all its followers.

    It reads only when the bus says that there is news.
    """

    def __init__(self, store: Store, clock: Clock, session_id: str, tail_bytes: int) -> None:
        self.session_id = session_id
        self.followers = 0
        self.is_over = False
        self.position = 0
        """The number of the newest event read."""
        self._store = store
        self._clock = clock
        self._tail = EventTail(tail_bytes)
        self.texts = StreamedTexts()
        self._wants_stored = False
        self._filled_at = self._heard_at = -FILL_SECONDS
        self._news: BusSubscription | None = None
        self._grown = asyncio.Event()
        self._started = asyncio.Event()
        self.reader = asyncio.create_task(self._keep_reading(), name=f"feed {session_id}")
        self.reader.add_done_callback(self._handle_end)

    def close(self) -> None:
        """Stop reading and wake all followers."""
        self.is_over = True
        self.reader.cancel()
        self._wake_followers()

    def wake(self) -> None:
        """Read what is new."""
        if self._news is not None:
            self._news.wake()

    def poll_text(self) -> None:
        """Read stored text if the bus brought none for a while: it may not reach the worker's
        process."""
        now = self._clock.monotonic()
        if any(self.texts.open) and now - max(self._filled_at, self._heard_at) >= FILL_SECONDS:
            self._filled_at = now
            self._wants_stored = True
            self.wake()

    async def enter(self, after: int | None) -> tuple[int, Reset | None]:
        """Return where a follower starts that wants the events after a number, with a reset if
        those are gone."""
        await self._started.wait()
        self._raise_fault()
        if after is None:
            return self.position, None
        if self._tail.covers(after) and after <= self.position:
            return after, None
        if after > self.position:
            self.wake()  # the follower is ahead, by another server
        oldest, newest = await self._store.read(lambda tx: tx.entry_range(self.session_id))
        return (after, None) if oldest - 1 <= after <= newest else (newest, Reset(newest))

    def tail_after(self, position: int) -> Sequence[LiveEvent] | None:
        """Return the next events after a number; None if they are not in memory."""
        return () if position >= self.position else self._tail.batch_after(position)

    async def page_after(self, position: int) -> Sequence[LiveEvent]:
        """Read the next events after a number from the database."""
        events = await self._read(
            lambda tx: tx.entries_after(self.session_id, position, limit=REPLAY_PAGE)
        )
        return batch_of(LiveEvent(event) for event in events)

    async def range(self) -> tuple[int, int]:
        """Read the oldest and the newest number."""
        return await self._read(lambda tx: tx.entry_range(self.session_id))

    async def sent_texts(self, cursor: Cursor) -> dict[str, TextPosition]:
        """Return, by execution, how much of open texts a reconnecting follower has."""

        async def starts(tx: Transaction) -> list[StoredEntry]:
            return [
                event
                for text in cursor.texts
                for event in await tx.entries_after(self.session_id, text.start - 1, limit=1)
            ]

        found = {event.seq: event for event in await self._read(starts)} if cursor.texts else {}
        return {
            event.execution_id or "": text
            for text in cursor.texts
            if (event := found.get(text.start)) and event.type == EnvelopeType.AGENT_STEP_STARTED
        }

    async def has_grown(self, seconds: float | None) -> bool:
        """Wait for more, at most so many seconds. Return whether there is any."""
        try:
            async with asyncio.timeout(seconds):
                await self._grown.wait()
        except TimeoutError:
            return False
        self._raise_fault()
        return True

    async def _keep_reading(self) -> None:
        bus = self._store.bus
        with bus.listen(self.session_id, self._receive):
            async with bus.subscribe(session_topic(self.session_id)) as news:
                self._news = news
                self.position = await self._read(self._first_position)
                while True:
                    events = await self._read(
                        lambda tx: tx.entries_after(self.session_id, self.position, limit=PAGE)
                    )
                    if events:
                        self._add(events)
                    if len(events) < PAGE:
                        self._started.set()
                        await self._fill_text()
                        await news.wait(None)

    async def _first_position(self, tx: Transaction) -> int:
        """Return the newest number; if something runs, one before it, to find the open steps."""
        oldest, newest = await tx.entry_range(self.session_id)
        unfinished = await tx.unfinished(self.session_id)
        if not any(it.status is ExecutionStatus.RUNNING for it in unfinished):
            return newest
        self._wants_stored = True
        return max(oldest - 1, newest - LOOK_BACK)

    def _receive(self, deltas: Sequence[Delta]) -> None:
        """Add text from the bus."""
        self._heard_at = self._clock.monotonic()
        if self.texts.apply_deltas(deltas):
            self._wake_followers()
        if self.texts.has_gap and self._heard_at - self._filled_at >= FILL_SECONDS:
            self._filled_at = self._heard_at
            self._wants_stored = True
            self.wake()

    async def _fill_text(self) -> None:
        if self._wants_stored:
            self._wants_stored = False
            self.texts.apply_stored(await self._read(lambda tx: tx.open_texts(self.session_id)))
            self._wake_followers()

    def _add(self, events: Sequence[StoredEntry]) -> None:
        if events[0].seq != self.position + 1:  # deleted meanwhile: followers behind it get a reset
            self._tail.clear()
        for event in events:
            self.texts.apply_event(event)
            self._tail.append(LiveEvent(event))
        self.position = events[-1].seq
        self._wake_followers()

    def now(self) -> datetime:
        """Return the time, for text that is not in the journal."""
        return self._clock.now()

    async def _read(self, work: Callable[[Transaction], Awaitable[Result]]) -> Result:
        """Read, and retry while the database is unavailable."""
        while True:
            try:
                return await self._store.read(work)
            except StoreUnavailableError as error:
                logger.warning(
                    "could not read the journal of session %s: %s", self.session_id, error
                )
            await self._clock.sleep(RETRY_SECONDS)

    def _wake_followers(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    def _raise_fault(self) -> None:
        if self.reader.done() and not self.reader.cancelled():
            self.reader.result()

    def _handle_end(self, reader: asyncio.Task[None]) -> None:
        if not reader.cancelled() and (fault := reader.exception()) is not None:
            logger.error("the reader of session %s failed", self.session_id, exc_info=fault)
        self._started.set()
        self._wake_followers()


class FeedPlace(NamedTuple):
    """Where a follower starts, and how much it has of open texts, by execution."""

    position: int
    reset: Reset | None
    sent: dict[str, TextPosition]


class LiveSubscription:
    """One follower of a session and its position."""

    def __init__(self, feed: SessionFeed, place: FeedPlace, leave: Callable[[], None]) -> None:
        """``leave`` is called once, when the subscription is closed."""
        self._feed = feed
        self._leave = leave
        self._position, self._reset, self._sent = place
        self._is_open = True

    @property
    def position(self) -> int:
        """The number of the newest event taken."""
        return self._position

    async def take(self, seconds: float | None = None) -> Sequence[Item] | None:
        """Return the next events, in order and without a gap. Empty if none came in so many
        seconds, None when the feed is closed."""
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
        """Advance by an event; of a text that was streamed in part, send only the rest."""
        event, self._position = one.event, one.seq
        if event.type in _ENDS_TEXT:
            sent = self._sent.pop(event.execution_id or "", None)
            if sent is not None and event.type == EnvelopeType.AGENT_STREAM_CHUNK:
                one = LiveEvent(replace(event, payload=_rest(event.payload, sent)))
        return one.at(str(self._cursor)) if self._sent else one

    def _take_texts(self) -> Iterator[LiveEvent]:
        """Advance by what was added to open texts."""
        if self._position > self._feed.position:
            return  # it is ahead, by another server
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
        # The next events were deleted meanwhile.
        _, newest = await self._feed.range()
        self._position, self._reset, self._sent = newest, Reset(newest), {}
        return ()

    async def __aiter__(self) -> AsyncIterator[Item]:
        while (batch := await self.take()) is not None:
            for item in batch:
                yield item

    def close(self) -> None:
        """End the subscription."""
        if self._is_open:
            self._is_open = False
            self._leave()

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
