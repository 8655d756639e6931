"""Tasks beside the server: one that fails is logged and restarted."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from stepwell.clock import Clock

logger = logging.getLogger("stepwell.app")

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class SupervisedTask:
    """Runs ``work`` until it returns. Restarts it after an error, with exponential backoff that is
    reset once a run lasted longer than the longest pause."""

    def __init__(
        self, name: str, work: Callable[[], Coroutine[Any, Any, None]], clock: Clock
    ) -> None:
        self.name = name
        self._work = work
        self._clock = clock
        self._fault: str | None = None

    async def check(self) -> str | None:
        """Return what is wrong, or None. The error's own message goes only to the log."""
        return self._fault

    async def run(self) -> None:
        """Run until the work is done or this is cancelled."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = self._clock.monotonic()
            error = await self._error_of_one_run()
            if error is None:
                return
            if self._clock.monotonic() - began > LONGEST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            logger.error("the %s failed and restarts in %g s", self.name, pause, exc_info=error)
            self._fault = f"failed with {type(error).__name__} and restarts soon; see the log"
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
