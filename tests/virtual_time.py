"""An event loop whose time moves only when nothing else can: waiting for a timeout takes no
time, and a busy machine can't make a timeout come early.

For tests without sockets, processes and threads: `pytestmark = virtual_time`.
"""

import asyncio
import selectors

import pytest

from stepwell.clock import SystemClock

virtual_time = pytest.mark.virtual_time


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Moves its clock on to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._seconds = 0.0
        super().__init__(_ImpatientSelector(self))

    def time(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        self._seconds += seconds


class _ImpatientSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self._loop.advance(timeout)
        return ready


class LoopClock(SystemClock):
    """The system's clock, but for limits: they are counted in the loop's time."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()
