"""Searches wait for each other, apart from all other reads: one can take seconds, and whoever
sends many must not hold up those who only look something up.
"""

import asyncio

from stepwell.sessions.errors import RefusedError, TooManyError

SEARCH_SECONDS = 2.0
"""A search that has not ended by then is given up."""
_LONGEST_WAIT = 5.0


class SearchElsewhere(Exception):
    """Work that reads has come to a search; it is to be done again in its turn."""


class SearchTurns:
    """So many searches at a time; one for the length of a block."""

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
        """Let the next one in."""
        self._free.release()


def too_slow(seconds: float) -> RefusedError:
    """What is said of a search that was given up."""
    return RefusedError(
        f"the search did not end within {seconds:g} s; filter by status, agent_type or user_id, or "
        "search for fewer words",
        code="search_too_slow",
    )
