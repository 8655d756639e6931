"""The safety net under the bus: one query for all followed sessions of the process."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store

logger = logging.getLogger("stepwell.server")

LOCAL_SECONDS = 0.2
"""How often other processes are looked after when the bus does not reach them."""
SHARED_SECONDS = 2.0
"""How often otherwise: a bus may lose."""


class PolledFeed(Protocol):
    """A followed session."""

    @property
    def position(self) -> int:
        """The number of the newest event it knows."""
        ...

    def wake(self) -> None:
        """Read on."""
        ...

    def poll_text(self) -> None:
        """Read what is stored of text that is being generated, if none came otherwise."""
        ...


class FallbackPoll:
    """Wakes the feeds whose log grew without a word from the bus. Runs while there are any."""

    def __init__(self, store: Store, feeds: Mapping[str, PolledFeed]) -> None:
        self._store = store
        self._feeds = feeds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Poll from now on; calling it again does nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_polling(), name="fallback poll")
            self._task.add_done_callback(_log_fault)

    def stop(self) -> None:
        """Poll no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _keep_polling(self) -> None:
        pause = SHARED_SECONDS if self._store.bus.reaches_all else LOCAL_SECONDS
        marker = None
        while True:
            await asyncio.sleep(pause)
            try:
                newer = await self._store.change_marker()
                if newer is None or newer != marker:
                    await self._poll()
                marker = newer
            except StoreUnavailableError as error:
                logger.warning("the logs of followed sessions can't be read: %s", error)

    async def _poll(self) -> None:
        known = {session_id: feed.position for session_id, feed in self._feeds.items()}
        for session_id in await self._store.read(lambda tx: tx.sessions_with_news(known)):
            if (feed := self._feeds.get(session_id)) is not None:
                feed.wake()
        if not self._store.bus.reaches_all:
            for feed in self._feeds.values():
                feed.poll_text()


def _log_fault(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        logger.error("the fallback poll broke", exc_info=fault)
