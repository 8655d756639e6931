"""Whether somebody who follows a session still may: asked again when access may have changed."""

import logging
from collections.abc import Awaitable, Callable

from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import ACCESS_TOPIC, Bus

logger = logging.getLogger("stepwell.server")

LOOK_SECONDS = 3.0
"""How often it is asked when the bus does not reach other processes."""
LOOK_ANYWAY_SECONDS = 30.0
"""How often otherwise: the application's own rule may change without a word to us."""


async def access_lost(bus: Bus, may_follow: Callable[[], Awaitable[bool]]) -> None:
    """Returns when somebody may follow a session no more."""
    pause = LOOK_ANYWAY_SECONDS if bus.reaches_all else LOOK_SECONDS
    async with bus.subscribe(ACCESS_TOPIC) as news:
        while True:
            # First of all once more: it may have changed while the stream was opened.
            try:
                if not await may_follow():
                    return
            except StoreUnavailableError as error:
                logger.warning("whether a session may still be followed is not known: %s", error)
            await news.wait(pause)
