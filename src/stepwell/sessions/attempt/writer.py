"""The one way in which an attempt reads and writes the database: ``async with writer as store``.

One transaction at a time, in the order in which things happened. A transaction that fails ends the
run where it stands, so that a database fault never becomes a tool's result or an error step; the
execution is then left for takeover.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from stepwell.sessions.ports import Store, Transaction

Result = TypeVar("Result")
Work = Callable[[Transaction], Awaitable[Result]]


class Writer:
    """Gives the store to one transaction of an attempt after the other, until one fails; whoever
    comes then waits for the run's end."""

    def __init__(self, store: Store, cancel_again_seconds: float) -> None:
        self.failure: BaseException | None = None
        """Why the run was abandoned."""
        self.flush: Callable[[], Awaitable[None]] | None = None
        """Stores what the run has to tell, for those who build on it; given by its boundaries."""
        self._store = store
        self._turn = asyncio.Lock()
        self._run: asyncio.Task[Any] | None = None
        self._cancel_again_seconds = cancel_again_seconds

    def bind(self, run: "asyncio.Task[Any]") -> None:
        """Name the task of the run, which ends when the attempt is abandoned."""
        self._run = run

    async def __aenter__(self) -> Store:
        """Wait until all earlier transactions have committed. Return the store for the next one."""
        await self._turn.acquire()
        if self.failure is not None:
            self._turn.release()
            await _wait_for_cancellation()
        return self._store

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._turn.release()
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self.abandon(error)
            await _wait_for_cancellation()

    def abandon(self, why: BaseException) -> None:
        """Stop the run at once and write nothing more; another worker takes over."""
        if self.failure is None:
            self.failure = why
            self._cancel_run()

    def _cancel_run(self) -> None:
        # Again and again: a tool may swallow the cancellation.
        if self._run is not None and not self._run.done():
            self._run.cancel()
            loop = asyncio.get_running_loop()
            loop.call_later(self._cancel_again_seconds, self._cancel_run)


async def _wait_for_cancellation() -> None:
    await asyncio.get_running_loop().create_future()
