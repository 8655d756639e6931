"""Checks whether the database accepts writes, for ``/ready``. Reads prove nothing: they work with a
full disk, a deleted file, or a lock that nobody releases."""

import asyncio

from stepwell.clock import Clock
from stepwell.errors import StepwellError
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store

PROBE_SECONDS = 5.0
"""At most one write in this time, however often ``/ready``, which needs no login, is called."""
_LONGEST_WAIT = 12.0
"""Longer than a write waits for the lock of a SQLite file, so that the error names its holder."""


class WriteProbe:
    """Makes a tiny write now and then and remembers the result."""

    def __init__(self) -> None:
        self._running: asyncio.Task[str | None] | None = None
        self._fault: str | None = None
        self._ended_at: float | None = None

    async def find_fault(self, store: Store, clock: Clock) -> str | None:
        """Return why the database accepts no writes, in words for clients, or None."""
        now = clock.monotonic()
        if self._running is None:
            if self._ended_at is not None and now - self._ended_at < PROBE_SECONDS:
                return self._fault
            self._running = asyncio.create_task(_write(store), name="stepwell-write-probe")
        running = self._running
        done, _ = await asyncio.wait({running}, timeout=_LONGEST_WAIT)
        if not done:
            return self._fault or f"a write did not finish within {_LONGEST_WAIT:g} s"
        if self._running is running:
            self._running, self._ended_at = None, clock.monotonic()
            self._fault = running.result()
        return self._fault


async def _write(store: Store) -> str | None:
    try:
        await store.check_writable()
    except StoreUnavailableError as error:
        return error.reason or "does not answer"
    except StepwellError:
        return "is damaged"
    return None
