"""Tasks that go on beside the server: one that breaks is logged and starts again."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from stepwell.clock import Clock

logger = logging.getLogger("stepwell.app")

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class SupervisedTask:
    """Runs ``work`` until it returns; after an error again, each time after a longer pause. One
    that held out longer than the longest pause begins with a short one."""

    def __init__(
        self, name: str, work: Callable[[], Coroutine[Any, Any, None]], clock: Clock
    ) -> None:
        self.name = name
        self._work = work
        self._clock = clock
        self._fault: str | None = None

    async def check(self) -> str | None:
        """None while it runs; else in words what is wrong, without the error's own, which are for
        the log."""
        return self._fault

    async def run(self) -> None:
        """Until the work is done, or this is cancelled."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = self._clock.monotonic()
            error = await self._error_of_one_run()
            if error is None:
                return
            if self._clock.monotonic() - began > LONGEST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            logger.error("the %s broke and starts again in %g s", self.name, pause, exc_info=error)
            self._fault = f"broke with {type(error).__name__} and starts again soon; see the log"
            await self._clock.sleep(pause)
            self._fault = None
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _error_of_one_run(self) -> BaseException | None:
        task = asyncio.create_task(self._work(), name=f"stepwell {self.name}")
        try:
            await asyncio.wait([task])
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        return asyncio.CancelledError() if task.cancelled() else task.exception()
