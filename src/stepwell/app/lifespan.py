"""Keeps the application's lifespan open while the app runs.

The context manager is entered and left in one task of its own, whoever starts and stops the app:
task groups and cancel scopes, which MCP clients use, must be closed by the task that opened them.
"""

import asyncio
import contextlib
from typing import Any


class OpenLifespan:
    """An async context manager that another task holds open.

    >>> opened = []
    >>> @contextlib.asynccontextmanager
    ... async def lifespan():
    ...     opened.append("pool")
    ...     yield "pool"
    ...     opened.remove("pool")
    >>> async def main():
    ...     held = OpenLifespan(lifespan())
    ...     value = await held.open()
    ...     print(value, opened)
    ...     await held.close()
    ...     print(opened)
    >>> asyncio.run(main())
    pool ['pool']
    []
    """

    def __init__(self, manager: contextlib.AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> Any:
        """Enter the context manager and return what it yields. Raises what it raises."""
        entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(entered), name="stepwell lifespan")
        await asyncio.wait([entered, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not entered.done():
            await self._task  # it failed to open
        return entered.result()

    async def _hold(self, entered: "asyncio.Future[Any]") -> None:
        async with self._manager as value:
            entered.set_result(value)
            await self._closing.wait()

    async def close(self) -> None:
        """Leave the context manager, in the task that entered it. Raises what it raises."""
        self._closing.set()
        if self._task is not None:
            await self._task
