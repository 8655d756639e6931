"""The followed sessions of this process.

Each has one feed while somebody follows it. The feed keeps the newest events in memory, encoded; a
follower that is behind reads the database at its own pace, so a slow reader costs no memory and
delays nobody. Idle followers cost no database work except the fallback poll.
"""

import asyncio
from contextlib import ExitStack
from functools import partial

from stepwell.clock import Clock
from stepwell.server.live.access_watch import AccessWatch
from stepwell.server.live.cursor import Cursor
from stepwell.server.live.fallback_poll import FallbackPoll
from stepwell.server.live.seats import Seats, WaitingSockets
from stepwell.server.live.session_feed import FeedPlace, LiveSubscription, SessionFeed
from stepwell.server.settings import ServerSettings
from stepwell.sessions.ports import Store


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
        """The number of followed sessions."""
        return len(self._feeds)

    @property
    def following(self) -> int:
        """The number of followers."""
        return sum(feed.followers for feed in self._feeds.values())

    async def subscribe(self, session_id: str, after: Cursor | int | None) -> LiveSubscription:
        """Follow a session after that number or cursor; None for what is new from now on. Close the
        subscription."""
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
        place = FeedPlace(position, reset, sent)
        return LiveSubscription(feed, place, partial(self.leave, feed))

    def leave(self, feed: SessionFeed) -> None:
        """Remove a follower; the last one closes the feed."""
        feed.followers -= 1
        if feed.followers == 0 and self._feeds.get(feed.session_id) is feed:
            del self._feeds[feed.session_id]
            self._leaving.add(feed.reader)
            feed.reader.add_done_callback(self._leaving.discard)
            feed.close()
        if not self._feeds:
            self._poll.stop()

    async def close(self) -> None:
        """End every stream."""
        self._is_closed = True
        self._poll.stop()
        readers = [feed.reader for feed in self._feeds.values()]
        for feed in self._feeds.values():
            feed.close()
        await asyncio.gather(*readers, *self._leaving, return_exceptions=True)
