"""The bus of one process."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager

from stepwell.sessions.bus import Delta

Deliver = Callable[[Sequence[Delta]], None]


class LocalSubscription:
    """Remembers that there was news until somebody looks."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Note that there is news."""
        self._news.set()

    async def wait(self, seconds: float | None) -> bool:
        """Wait for news, at most so long. Return whether there was any since the last call."""
        if not self._news.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return False
        self._news.clear()
        return True


class LocalBus:
    """Reaches subscribers in this process, directly, and keeps nothing."""

    def __init__(self) -> None:
        self._subscribers: dict[str, set[LocalSubscription]] = {}
        self._listeners: dict[str, list[Deliver]] = {}

    @property
    def reaches_all(self) -> bool:
        """Other processes hear nothing."""
        return False

    def publish(self, topic: str, /) -> None:
        """Wake all subscribers of the topic."""
        for subscription in self._subscribers.get(topic, ()):
            subscription.wake()

    @asynccontextmanager
    async def subscribe(self, topic: str, /) -> AsyncGenerator[LocalSubscription]:
        """Subscribe for the length of a block."""
        subscription = LocalSubscription()
        subscribers = self._subscribers.setdefault(topic, set())
        subscribers.add(subscription)
        try:
            yield subscription
        finally:
            subscribers.discard(subscription)
            if not subscribers and self._subscribers.get(topic) is subscribers:
                del self._subscribers[topic]

    def publish_deltas(self, deltas: Iterable[Delta], /) -> None:
        """Deliver to who listens to each session."""
        wanted: dict[str, list[Delta]] = {}
        for delta in deltas:
            if delta.session_id in self._listeners:
                wanted.setdefault(delta.session_id, []).append(delta)
        for session_id, own in wanted.items():
            for deliver in tuple(self._listeners.get(session_id, ())):
                deliver(own)

    @contextmanager
    def listen(self, session_id: str, deliver: Deliver, /) -> Generator[None]:
        """Deliver the deltas of a session for the length of a block."""
        listeners = self._listeners.setdefault(session_id, [])
        listeners.append(deliver)
        try:
            yield
        finally:
            listeners.remove(deliver)
            if not listeners and self._listeners.get(session_id) is listeners:
                del self._listeners[session_id]

    def wake_all(self) -> None:
        """Wake every subscriber: there may be news of anything."""
        for topic in self._subscribers:
            self.publish(topic)

    async def close(self) -> None:
        """Nothing waits and nothing is connected."""
