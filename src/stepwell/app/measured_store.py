"""A store that measures the duration of writes, for ``/metrics``."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from stepwell.clock import Clock
from stepwell.server.metrics import Histogram
from stepwell.sessions.bus import Bus
from stepwell.sessions.ports import Store, Transaction

Result = TypeVar("Result")


class MeasuredStore:
    """Wraps a store and measures its transactions by name."""

    def __init__(self, store: Store, writes: Histogram, clock: Clock) -> None:
        self._store = store
        self._writes = writes
        self._clock = clock

    @property
    def bus(self) -> Bus:
        """Notifies readers of changes."""
        return self._store.bus

    async def write(
        self, work: Callable[[Transaction], Awaitable[Result]], /, *, name: str
    ) -> Result:
        """Run the work in a transaction and record its duration."""
        began = self._clock.monotonic()
        try:
            return await self._store.write(work, name=name)
        finally:
            self._writes.observe(self._clock.monotonic() - began, name=name)

    async def read(self, work: Callable[[Transaction], Awaitable[Result]], /) -> Result:
        """Run the work on a consistent view."""
        return await self._store.read(work)

    async def check_writable(self) -> None:
        """Commit a tiny write."""
        await self._store.check_writable()

    async def change_marker(self) -> int | None:
        """Return a number that changes when another connection commits."""
        return await self._store.change_marker()

    async def reopen(self) -> Store:
        """Open the same database for another thread; its writes are not measured."""
        return await self._store.reopen()

    async def close(self) -> None:
        """Close the connections."""
        await self._store.close()
