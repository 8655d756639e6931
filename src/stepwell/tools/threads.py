"""Runs a sync function in a thread of its own, so that it can be abandoned without harm.

A pool would be blocked by abandoned calls, and would hold up the end of the program.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from stepwell.foreign import as_exception


async def in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """The function's result. Cancelling the wait leaves the thread to end by itself."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value: Any = None
        failure: Exception | None = None
        try:
            value = context.run(function, **arguments)
        except BaseException as error:  # noqa: BLE001 - it is raised again in the awaiting task
            failure = as_exception(error)
        with suppress(RuntimeError):  # the loop was closed meanwhile, and nobody waits
            loop.call_soon_threadsafe(settle, value, failure)

    name = f"stepwell-{getattr(function, '__name__', 'tool')}"
    threading.Thread(target=work, name=name, daemon=True).start()
    return await future
