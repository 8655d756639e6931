"""The safety net under the bus: one query for all followed sessions of the process."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store

logger = logging.getLogger("stepwell.server")

LOCAL_SECONDS = 0.2
"""Seconds between polls if the bus does not reach other processes."""
SHARED_SECONDS = 2.0
"""Seconds between polls otherwise: a bus may lose messages."""


class PolledFeed(Protocol):
    """The feed of a followed session."""

    @property
    def position(self) -> int:
        """The number of the newest event read."""
        ...

    def wake(self) -> None:
        """Read what is new."""
        ...

    def poll_text(self) -> None:
        """Read stored text if the bus brought none for a while."""
        ...


class FallbackPoll:
    """Wakes feeds whose journal grew without a message on the bus. Runs while there are feeds."""

    def __init__(self, store: Store, feeds: Mapping[str, PolledFeed]) -> None:
        self._store = store
        self._feeds = feeds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start polling, if it has not started."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_polling(), name="fallback poll")
            self._task.add_done_callback(_log_fault)

    def stop(self) -> None:
        """Stop polling."""
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
                logger.warning("could not read the journals of followed sessions: %s", error)

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
        logger.error("the fallback poll failed", exc_info=fault)
