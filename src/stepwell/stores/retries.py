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


async def retry_passing_faults(
    act: Callable[[], Awaitable[Result]], clock: Clock, name: str = "read"
) -> Result:
    """Await ``act`` until it succeeds, with backoff. Raise ``StoreUnavailableError`` after
    ``PATIENCE`` seconds."""
    until = clock.monotonic() + PATIENCE
    failures = clashes = 0
    while True:
        try:
            return await act()
        except PassingFault as fault:
            failures += 1
            if clock.monotonic() >= until:
                raise StoreUnavailableError(
                    f"the database did not do {name!r} for {PATIENCE:g} s, last: {fault}. It is "
                    "tried again with the next request",
                    reason=fault.reason,
                ) from fault
        except Clash as clash:
            clashes += 1
            if clashes >= _CLASHES:
                # The database's own words show keys and values of rows.
                logger.warning("%r clashed %d times, last: %s", name, clashes, clash)
                raise ConflictError(_THERE, code="already_there") from clash
        await clock.sleep(_PAUSES.delay(max(failures, clashes)))
