"""A store whose writes are timed, for ``/metrics``."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from stepwell.clock import Clock
from stepwell.server.metrics import Histogram
from stepwell.sessions.bus import Bus
from stepwell.sessions.ports import Store, Transaction

Result = TypeVar("Result")


class MeasuredStore:
    """Another store, and how long its transactions take, by name."""

    def __init__(self, store: Store, writes: Histogram, clock: Clock) -> None:
        self._store = store
        self._writes = writes
        self._clock = clock

    @property
    def bus(self) -> Bus:
        """On which changes are told."""
        return self._store.bus

    async def write(
        self, work: Callable[[Transaction], Awaitable[Result]], /, *, name: str
    ) -> Result:
        """Run it in a transaction, and note how long that took."""
        began = self._clock.monotonic()
        try:
            return await self._store.write(work, name=name)
        finally:
            self._writes.observe(self._clock.monotonic() - began, name=name)

    async def read(self, work: Callable[[Transaction], Awaitable[Result]], /) -> Result:
        """Run it on a consistent view."""
        return await self._store.read(work)

    async def check_writable(self) -> None:
        """Commit a tiny write."""
        await self._store.check_writable()

    async def change_marker(self) -> int | None:
        """A number that differs once somebody else has committed."""
        return await self._store.change_marker()

    async def reopen(self) -> Store:
        """The same database for another thread; its writes are not timed."""
        return await self._store.reopen()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._store.close()
