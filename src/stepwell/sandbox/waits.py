"""Waits for descriptors, processes and work that must be finished, without blocking the event
loop."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

ROUND_SECONDS = 0.005


async def wait_readable(descriptor: int) -> None:
    """Wait until a descriptor can be read without blocking; for a pidfd: until the process
    ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _set_ready, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def wait_writable(descriptor: int) -> None:
    """Wait until a descriptor can be written without blocking."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _set_ready, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


async def wait_gone(pid: int) -> None:
    """Wait until a process is gone, for kernels without pidfds."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            await asyncio.sleep(ROUND_SECONDS)


async def finish_uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Finish this work even if the task is cancelled meanwhile; then raise the cancellation."""
    task = private_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and not task.cancelled():
        task.exception()  # retrieved: the caller gets the cancellation
        raise cancelled
    return task.result()


def private_task(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Create a task that the event loop does not know.

    A closing loop cancels all tasks it knows at once, including those that clean up. The caller
    must wait for this one.
    """
    task = asyncio.get_running_loop().create_task(work)
    # Private by name, but documented for extending asyncio.
    asyncio._unregister_task(task)
    return task


def _set_ready(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
