"""A task that breaks starts again, and says so meanwhile."""

import asyncio
import logging

import pytest

from stepwell.app.supervised_task import LONGEST_PAUSE_SECONDS, SupervisedTask
from stepwell.testing import FakeClock


class Paused(FakeClock):
    """Notes how long it was to sleep, and whether somebody asked how things stand."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.task: SupervisedTask | None = None
        self.said: list[str | None] = []

    async def sleep(self, seconds: float) -> None:
        assert self.task is not None
        self.pauses.append(seconds)
        self.said.append(await self.task.check())
        self.advance(seconds)


def supervised(clock: Paused, *faults: BaseException | None) -> SupervisedTask:
    """Work that breaks in these ways one after the other; None ends it well."""
    left = list(faults)

    async def work() -> None:
        assert clock.task is not None
        assert await clock.task.check() is None
        fault = left.pop(0)
        if isinstance(fault, LookupError):
            clock.advance(LONGEST_PAUSE_SECONDS + 1)
        if fault is not None:
            raise fault

    clock.task = SupervisedTask("worker", work, clock)
    return clock.task


async def test_an_error_is_logged_with_its_traceback_and_the_task_starts_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Paused()
    await supervised(clock, OSError("SECRET: too many files"), None).run()
    assert clock.pauses == [1.0]
    assert clock.said == ["failed with OSError and restarts soon; see the log"]
    [record] = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert "the worker failed" in record.getMessage()
    assert record.exc_info is not None
    assert "too many files" in str(record.exc_info[1])


async def test_pauses_grow_up_to_a_bound_and_begin_anew_after_a_good_time() -> None:
    clock = Paused()
    faults = [OSError()] * 8
    await supervised(clock, *faults, KeyError(), OSError(), None).run()
    assert clock.pauses == [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]


async def test_one_that_is_cancelled_ends_with_its_work() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(SupervisedTask("worker", work, FakeClock()).run())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
