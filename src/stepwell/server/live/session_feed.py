"""One session, read once for all who follow it in this process: its log, and the text that is being
generated."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import TypeVar

from msgspec import Struct

from stepwell.clock import Clock
from stepwell.journal.envelope import EnvelopeType
from stepwell.journal.status import ExecutionStatus
from stepwell.server.live.cursor import Cursor, TextPosition
from stepwell.server.live.live_event import LiveEvent
from stepwell.server.live.streamed_text import StreamedTexts
from stepwell.sessions.bus import BusSubscription, Delta
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store, Transaction, session_topic
from stepwell.sessions.records import StoredEntry

logger = logging.getLogger("stepwell.server")

PAGE = 500
"""Events that are read at once."""
REPLAY_PAGE = 200
"""Events that are read at once by a follower who is behind."""
BATCH_BYTES = 64 * 1024
"""How much is taken at once, unless a single event is larger."""
LOOK_BACK = 200
"""Events among which the steps are looked for that are open when somebody begins to follow."""
FILL_SECONDS = 1.0
"""How often stored text is read at most, where some that came by the bus is missing."""
RETRY_SECONDS = 0.5
"""How long to wait for a database that does not answer."""

Result = TypeVar("Result")


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
        self.texts = StreamedTexts()
        self._wants_stored = False
        self._filled_at = self._heard_at = -FILL_SECONDS
        self._news: BusSubscription | None = None
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

    def poll_text(self) -> None:
        """Read what is stored of open texts if the bus has brought none for a while: their worker
        is in a process that it does not reach."""
        now = self._clock.monotonic()
        if any(self.texts.open) and now - max(self._filled_at, self._heard_at) >= FILL_SECONDS:
            self._filled_at = now
            self._wants_stored = True
            self.wake()

    async def enter(self, after: int | None) -> tuple[int, Reset | None]:
        """Return where a follower begins that wants what is behind a number, and a reset if that
        is gone."""
        await self._started.wait()
        self._raise_fault()
        if after is None:
            return self.position, None
        if self._tail and self._tail[0].seq <= after + 1 <= self.position + 1:
            return after, None
        if after > self.position:
            self.wake()  # the follower knows more, from another server
        oldest, newest = await self._store.read(lambda tx: tx.entry_range(self.session_id))
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
            lambda tx: tx.entries_after(self.session_id, position, limit=REPLAY_PAGE)
        )
        return _batch(LiveEvent(event) for event in events)

    async def range(self) -> tuple[int, int]:
        """Read the oldest number and the newest."""
        return await self._read(lambda tx: tx.entry_range(self.session_id))

    async def sent_texts(self, cursor: Cursor) -> dict[str, TextPosition]:
        """Return by execution what a follower who comes again has of open texts."""

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
            if (event := found.get(text.start)) and event.type == EnvelopeType.STEP_STARTED
        }

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
        """Add text that came by the bus."""
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
        if events[0].seq != self.position + 1:  # deleted meanwhile: who is behind starts over
            self._tail.clear()
            self._tail_bytes = 0
        for event in events:
            self.texts.apply_event(event)
            one = LiveEvent(event)
            self._tail.append(one)
            self._tail_bytes += len(one.envelope)
        while self._tail_bytes > self._max_bytes:
            self._tail_bytes -= len(self._tail.popleft().envelope)
        self.position = events[-1].seq
        self._wake_followers()

    def now(self) -> datetime:
        """The time, for what is sent and in no log."""
        return self._clock.now()

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
