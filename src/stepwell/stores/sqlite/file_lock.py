"""The lock beside a database file that every writer holds.

SQLite before 3.51.3 can damage a WAL when one connection writes while another one checkpoints.
Its own locks allow that, so ours stands around both. The kernel releases it when a process dies.
"""

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stepwell.stores.retries import PassingFault
from stepwell.stores.sqlite.lock_holders import describe_lock_holders

_LONGEST_WAIT = 10.0


class FileLock:
    """Held by one connection of one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: int | None = None
        self._heirs = _Heirs()

    async def acquire(self) -> None:
        """Wait for it, without holding up the loop; raises ``PassingFault`` after a while."""
        self._held = await self._take()

    def release(self) -> None:
        """Let the next one in."""
        if self._held is not None:
            handle, self._held = self._held, None
            self._heirs.pass_on(handle)

    def heir(self) -> "FileLock":
        """A lock for another connection of this process, in another thread. When this one is
        released, a waiting heir has it before any other process."""
        return _HeirLock(self._path, self._heirs)

    async def _take(self) -> int:
        """A handle that has the lock."""
        handle = self._open()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await self._wait(handle)
        except OSError as error:
            os.close(handle)
            raise self._fault(error) from error
        return handle

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            # Too many open files, a full disk, a folder whose rights were changed: it may pass.
            raise self._fault(error) from error

    def _fault(self, error: OSError) -> PassingFault:
        return PassingFault(f"the lock {self._path} can't be taken: {error.strerror}")

    async def _wait(self, handle: int) -> None:
        # A thread of its own that may be left behind: nothing can interrupt flock, and who holds
        # the lock may be frozen.
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        waiter = _Waiter(handle, loop, arrived)
        threading.Thread(target=waiter.run, name="stepwell-file-lock", daemon=True).start()
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                await asyncio.shield(arrived)
        except TimeoutError:
            waiter.give_up()
            holder = describe_lock_holders([self._path])
            raise PassingFault(
                f"{holder} holds the lock {self._path}. Let it go on (kill -CONT), or end it",
                reason=f"{holder} holds its write lock",
            ) from None
        except asyncio.CancelledError:
            waiter.give_up()
            raise


class _Heirs:
    """Those who wait for the lock in other threads of this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: list[Callable[[int], object]] = []

    def add(self, take: Callable[[int], object]) -> None:
        with self._guard:
            self._waiting.append(take)

    def remove(self, take: Callable[[int], object]) -> bool:
        """Whether it waited still; otherwise it was given the lock."""
        with self._guard:
            if take not in self._waiting:
                return False
            self._waiting.remove(take)
            return True

    def pass_on(self, handle: int) -> None:
        """Give the lock to the first who waits, or release it."""
        with self._guard:
            while self._waiting:
                with suppress(RuntimeError):  # its loop is closed
                    self._waiting.pop(0)(handle)
                    return
        os.close(handle)


class _HeirLock(FileLock):
    """Has the lock by itself, or from another lock of this process that is released."""

    def __init__(self, path: Path, origin: _Heirs) -> None:
        super().__init__(path)
        self._origin = origin

    async def acquire(self) -> None:
        """Wait for it, without holding up the loop; raises ``PassingFault`` after a while."""
        loop = asyncio.get_running_loop()
        inherited: asyncio.Future[int] = loop.create_future()

        def take(handle: int) -> None:
            loop.call_soon_threadsafe(inherited.set_result, handle)

        self._origin.add(take)
        locking = asyncio.ensure_future(self._take())
        try:
            await asyncio.wait({locking, inherited}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            was_given = not self._origin.remove(take)
            locking.cancel()
            await asyncio.wait({locking, inherited} if was_given else {locking})
            self._held = _handle_of(locking, inherited)
            if (task := asyncio.current_task()) is not None and task.cancelling():
                self.release()
        if self._held is None:
            locking.result()


def _handle_of(locking: "asyncio.Future[int]", inherited: "asyncio.Future[int]") -> int | None:
    for each in (inherited, locking):
        if each.done() and not each.cancelled() and each.exception() is None:
            return each.result()
    return None


class _Waiter:
    def __init__(
        self, handle: int, loop: asyncio.AbstractEventLoop, arrived: "asyncio.Future[None]"
    ) -> None:
        self._handle, self._loop, self._arrived = handle, loop, arrived
        self._guard = threading.Lock()
        self._given_up = self._has_it = False

    def run(self) -> None:
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        with self._guard:
            self._has_it = True
            if self._given_up:
                os.close(self._handle)
                return
            # Inside the guard: who gives up after this closes the handle itself.
            self._loop.call_soon_threadsafe(self._tell)

    def give_up(self) -> None:
        with self._guard:
            self._given_up = True
            if self._has_it:
                os.close(self._handle)

    def _tell(self) -> None:
        if not self._arrived.done():
            self._arrived.set_result(None)
