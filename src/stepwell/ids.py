"""Where ids come from: time-ordered UUIDs (version 7), or a factory that was injected. And the ids
of the execution that runs here, for those who write logs and traces.
"""

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

IdFactory = Callable[[], str]


def new_id() -> str:
    """A UUID of version 7: unique, and sorted by the time it was made."""
    millis = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10))
    value = millis << 80 | 0x7 << 76 | (noise >> 68) << 64 | 0b10 << 62 | noise & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class RunIds:
    """Which execution of which session runs here, for the how-manieth time, and at which step.

    The step changes while it runs; tasks and threads that it started see the same object.
    """

    __slots__ = ("attempt", "execution_id", "session_id", "step")

    def __init__(self, execution_id: str, session_id: str | None = None, attempt: int = 1) -> None:
        self.execution_id = execution_id
        self.session_id = session_id
        self.attempt = attempt
        self.step: int | None = None


_RUN_IDS: ContextVar[RunIds | None] = ContextVar("stepwell_run_ids", default=None)


def run_ids() -> RunIds | None:
    """The ids of the execution of a session that this task or thread works for, if it does."""
    return _RUN_IDS.get()


@contextmanager
def running_as(ids: RunIds) -> Generator[None]:
    """What runs in this block, and what it starts, works for that execution."""
    token = _RUN_IDS.set(ids)
    try:
        yield
    finally:
        _RUN_IDS.reset(token)
