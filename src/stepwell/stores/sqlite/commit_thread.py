"""The thread that waits for the disk while a transaction commits.

Every step of every run comes by here, so it has one queue and one future per commit: an executor's
futures, and a shield around them, cost about as much as the commit itself.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any


class CommitThread:
    """Runs the same function again and again, each time for one caller that waits for it."""

    def __init__(self, commit: Callable[[], None]) -> None:
        self._commit = commit
        self._waiting: SimpleQueue[_Commit | None] = SimpleQueue()
        threading.Thread(target=self._run, name="stepwell-commit", daemon=True).start()

    async def commit(self) -> None:
        """Commit, and return or raise when that is over, also if the caller is cancelled: the
        connection is not free before."""
        commit = _Commit()
        self._waiting.put(commit)
        try:
            await commit.wait()
        except asyncio.CancelledError:
            while not commit.is_over:
                with suppress(asyncio.CancelledError):
                    await commit.wait()
            raise
        if commit.error is not None:
            raise commit.error

    def stop(self) -> None:
        """Let the thread end after what waits."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (commit := self._waiting.get()) is not None:
            with commit:
                self._commit()


class _Commit:
    """One commit, as its caller and the thread see it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] | None = None
        self.is_over = False
        self.error: BaseException | None = None

    async def wait(self) -> None:
        """Wait for its end, or until the caller is cancelled."""
        self._over = self._loop.create_future()
        await self._over

    def __enter__(self) -> None:
        """Called by the thread, as is what follows."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        """Wake the caller, who raises what was raised here."""
        self.error = error
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._wake)
        return True

    def _wake(self) -> None:
        self.is_over = True
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
