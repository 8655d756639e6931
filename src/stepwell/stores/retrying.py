"""Doing it again after a fault that passes: a busy file, a deadlock, a server that restarts."""

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
"""A row that somebody else added at the same moment is seen when the work is done again; one that
still clashes then is the work's own fault."""

_THERE = "something of that id or key is there already; read it before you try again"


class PassingFault(Exception):
    """The database could not do it now; the same again may succeed. ``reason`` is for clients."""

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class Clash(Exception):
    """A row of that key is there already."""


async def patiently(
    act: Callable[[], Awaitable[Result]], clock: Clock, name: str = "read"
) -> Result:
    """Act until it succeeds or patience ends, then raise ``StoreUnavailableError``."""
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
