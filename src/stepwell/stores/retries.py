"""Retries of database work after a passing fault: a busy file, a deadlock, a server restart."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stepwell.backoff import Backoff
from stepwell.clock import Clock
from stepwell.sessions.errors import ConflictError, StoreUnavailableError

Result = TypeVar("Result")
logger = logging.getLogger("stepwell.stores")

PATIENCE = 15.0
"""Seconds after which a database that does not answer is given up on."""
_PAUSES = Backoff(initial=0.01, factor=2.0, maximum=0.5, jitter=0.0)
_CLASHES = 5
"""Retries after a duplicate key: the next try sees a row that was added at the same moment, so one
that still clashes is the work's own fault."""

_THERE = "something of that id or key is there already; read it before you try again"


class PassingFault(Exception):
    """Raised when the database can't do it now and a retry may succeed. Clients see ``reason``."""

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class Clash(Exception):
    """Raised when a row with the same key exists."""


class Retries:
    """The retries of one piece of database work."""

    def __init__(self, clock: Clock, name: str = "read") -> None:
        self._clock = clock
        self._name = name
        self._until = clock.monotonic() + PATIENCE
        self._failures = self._clashes = 0

    async def wait(self, fault: PassingFault | Clash) -> None:
        """Wait before the next try, longer each time. Raise ``StoreUnavailableError`` after
        ``PATIENCE`` seconds, ``ConflictError`` when a clash stays."""
        if isinstance(fault, PassingFault):
            self._failures += 1
            if self._clock.monotonic() >= self._until:
                raise StoreUnavailableError(
                    f"the database did not do {self._name!r} for {PATIENCE:g} s, last: {fault}. It "
                    "is tried again with the next request",
                    reason=fault.reason,
                ) from fault
        else:
            self._clashes += 1
            if self._clashes >= _CLASHES:
                # The database's own words show keys and values of rows.
                logger.warning("%r clashed %d times, last: %s", self._name, self._clashes, fault)
                raise ConflictError(_THERE, code="already_there") from fault
        await self._clock.sleep(_PAUSES.delay(max(self._failures, self._clashes)))


async def retry_passing_faults(
    act: Callable[[], Awaitable[Result]], clock: Clock, name: str = "read"
) -> Result:
    """Await ``act`` until it succeeds; see ``Retries``."""
    retries = Retries(clock, name)
    while True:
        try:
            return await act()
        except (PassingFault, Clash) as fault:
            await retries.wait(fault)
