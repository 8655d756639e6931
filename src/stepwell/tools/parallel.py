"""Work on several things at once, within a bound. Used by the executor."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def run_parallel(
    items: Sequence[T], work: Callable[[T], Awaitable[R]], *, limit: int
) -> AsyncGenerator[R, None]:
    """Yield the results as they come in. What ``work`` raises is raised, and ends the rest."""
    waiting = iter(items)
    done: asyncio.Queue[R | BaseException] = asyncio.Queue()

    async def take_turns() -> None:
        for item in waiting:
            done.put_nowait(await work(item))

    def report_fault(worker: "asyncio.Task[None]") -> None:
        if not worker.cancelled() and (fault := worker.exception()) is not None:
            done.put_nowait(fault)

    workers = [asyncio.create_task(take_turns()) for _ in range(min(limit, len(items)))]
    for worker in workers:
        worker.add_done_callback(report_fault)
    try:
        for _ in items:
            result = await done.get()
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
