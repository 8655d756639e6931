"""Limits concurrent searches, so that slow searches never delay other reads."""

import asyncio

from stepwell.sessions.errors import RefusedError, TooManyError

SEARCH_SECONDS = 2.0
"""A search that takes longer is cancelled."""
_LONGEST_WAIT = 5.0


class SearchElsewhere(Exception):
    """Raised when a read reaches a search outside its turn; the read is repeated in a turn."""


class SearchTurns:
    """Allows ``at_once`` concurrent searches; each holds its turn for the length of a block."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)

    async def __aenter__(self) -> None:
        """Wait for a turn; raises ``TooManyError`` after a while."""
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                await self._free.acquire()
        except TimeoutError:
            raise TooManyError(
                "too many searches wait already; search again in a moment",
                code="search_busy",
                retry_after=_LONGEST_WAIT,
            ) from None

    async def __aexit__(self, *_error: object) -> None:
        """Release the turn."""
        self._free.release()


def too_slow(seconds: float) -> RefusedError:
    """Return the error for a search that took too long."""
    return RefusedError(
        f"the search did not end within {seconds:g} s; filter by status, agent_type or user_id, or "
        "search for fewer words",
        code="search_too_slow",
    )
