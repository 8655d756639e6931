"""Waiting for descriptors, processes and work that must not be left half done, without blocking the
event loop.
"""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

ROUND_SECONDS = 0.005


async def readable(descriptor: int) -> None:
    """Wait until it can be read without blocking; a handle of a process: until that ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def writable(descriptor: int) -> None:
    """Wait until it can be written without blocking."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


async def gone(pid: int) -> None:
    """Wait until there is no such process, for kernels without handles of processes."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            await asyncio.sleep(ROUND_SECONDS)


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Finish this work even if the task is cancelled meanwhile; the cancellation comes after it."""
    task = private_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and not task.cancelled():
        task.exception()  # seen: the cancellation is what the caller hears of
        raise cancelled
    return task.result()


def private_task(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """A task that only those who wait for it know.

    A loop that is closed cancels all the tasks it knows of at once, also those that others wait for
    in order to leave nothing behind. Its maker must wait for it.
    """
    task = asyncio.get_running_loop().create_task(work)
    # Named so, but documented, for those who extend asyncio.
    asyncio._unregister_task(task)
    return task


def _settle(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
