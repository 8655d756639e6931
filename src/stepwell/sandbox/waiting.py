"""Waiting for descriptors and processes without blocking the event loop."""

import asyncio
import os
from contextlib import suppress

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


def _settle(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
