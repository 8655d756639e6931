"""Measures how long requests hold the event loop: the processor time of its longest callback.

Processor time of the loop's own thread, so that other programs on the machine do not count.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class LongestCallback:
    """The longest callback that the loop ran, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.name = ""

    def note(self, handle: Any, seconds: float) -> None:
        if seconds > self.seconds:
            self.seconds, self.name = seconds, repr(handle)[:300]


@contextmanager
def measure_callbacks() -> Iterator[LongestCallback]:
    """Time every callback of the event loops of this process for the length of a block."""
    longest, run = LongestCallback(), asyncio.Handle._run

    def run_measured(handle: Any) -> None:
        began = time.thread_time()
        try:
            run(handle)
        finally:
            longest.note(handle, time.thread_time() - began)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", run_measured)
        yield longest


def machine_factor() -> float:
    """How many times slower than a usual machine this one is; at least 1."""
    best = min(_seconds_of_a_known_task() for _ in range(5))
    return max(1.0, best / 0.010)


def _seconds_of_a_known_task() -> float:
    began = time.thread_time()
    names: dict[str, int] = {}
    for number in range(40_000):
        names[str(number)] = number
    return time.thread_time() - began
