"""The bus of one process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class LocalSubscription:
    """Remembers that there was news until somebody looks."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def wake(self) -> None:
        """There is news."""
        self._news.set()

    async def wait(self, seconds: float) -> bool:
        """Whether there was news since the last look, after waiting so long at most."""
        if not self._news.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return False
        self._news.clear()
        return True


class LocalBus:
    """Tells those who wait in this process. See ``sessions.ports.Bus``."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[LocalSubscription]] = {}

    @property
    def reaches_all(self) -> bool:
        """Other processes hear nothing."""
        return False

    def publish(self, topic: str, /) -> None:
        """Tell all who wait."""
        for subscription in self._waiting.get(topic, ()):
            subscription.wake()

    @asynccontextmanager
    async def subscribe(self, topic: str, /) -> AsyncGenerator[LocalSubscription]:
        """Hear of that topic for the length of a block."""
        subscription = LocalSubscription()
        waiting = self._waiting.setdefault(topic, set())
        waiting.add(subscription)
        try:
            yield subscription
        finally:
            waiting.discard(subscription)
            if not waiting and self._waiting.get(topic) is waiting:
                del self._waiting[topic]

    def wake_all(self) -> None:
        """There may be news of anything."""
        for topic in list(self._waiting):
            self.publish(topic)
