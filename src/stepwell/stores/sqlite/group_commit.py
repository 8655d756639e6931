"""Writes of one process that share commits.

A write that finds the connection free commits by itself: one visit to the connection's thread.
Those that come meanwhile wait, and then share a commit: each runs in a savepoint, one after the
other, in its caller's own task, until the batch is full or has lasted long enough. Then one commit,
one wait for the disk, and all of them return.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from stepwell.clock import Clock
from stepwell.errors import StepwellError
from stepwell.stores.retries import PassingFault
from stepwell.stores.sqlite.commit_thread import CommitThread
from stepwell.stores.sqlite.database_file import DatabaseFile
from stepwell.stores.sqlite.file_lock import FileLock
from stepwell.stores.sqlite.sqlite_connection import SqliteConnection

_MOST_WRITES = 64
_LONGEST_BATCH = 0.01
_CHECKPOINT_CHANGES = 4000
_CHECKPOINT_SECONDS = 1.0


class _Writer:
    """One write in the queue, as the caller and the batch see it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = loop.create_future()
        """Now it may use the connection."""
        self.worked: asyncio.Future[bool] = loop.create_future()
        """It is done with it; false if its changes are to be undone."""
        self.committed: asyncio.Future[None] = loop.create_future()

    def fail(self, error: BaseException) -> None:
        """Tell the caller, wherever it waits."""
        for future in (self.turn, self.committed):
            if not future.done():
                future.set_exception(error)
                future.exception()


class GroupCommit:
    """The queue before the writing connection."""

    def __init__(
        self, lane: SqliteConnection, lock: FileLock, file: DatabaseFile, clock: Clock
    ) -> None:
        self._lane, self._lock, self._file, self._clock = lane, lock, file, clock
        self._queue: deque[_Writer] = deque()
        self._wanted = asyncio.Event()
        self._connection = asyncio.Lock()
        """Held while a batch, or a write by itself, uses the connection."""
        self._closing = False
        self._seen_changes = lane.changes
        self._checkpointed_at = clock.monotonic()
        self._thread = CommitThread(lane.commit)
        self._task = asyncio.create_task(self._run(), name="stepwell-group-commit")

    async def write(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run it and return when it has committed; if it raises, it has changed nothing."""
        if self._closing:
            raise RuntimeError("the store is closed")
        if not self._queue and not self._connection.locked():
            await self._write_alone(work)
            return
        writer = _Writer()
        self._queue.append(writer)
        self._wanted.set()
        try:
            await writer.turn
            await work()
            writer.worked.set_result(True)
        finally:
            if not writer.worked.done():
                # It raised or was cancelled; if it still waits for its turn, it is passed over.
                writer.turn.cancel()
                writer.worked.set_result(False)
        await writer.committed

    async def _write_alone(self, work: Callable[[], Awaitable[None]]) -> None:
        async with self._connection:
            await self._acquire_lock()
            try:
                self._lane.quick_command("BEGIN IMMEDIATE")
                try:
                    await work()
                    await self._end_transaction()
                finally:
                    await self._undo_unless_committed()
                await self._checkpoint_if_due()
            finally:
                self._lock.release()

    async def close(self) -> None:
        """Finish what waits, then checkpoint."""
        self._closing = True
        self._wanted.set()
        await self._task
        self._thread.stop()

    async def _run(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                while self._queue:
                    await self._batch()
                if self._closing:
                    return
        finally:
            self._closing = True
            _answer(self._queue, RuntimeError("the store is closed"))

    async def _batch(self) -> None:
        async with self._connection:
            await self._run_batch()

    async def _run_batch(self) -> None:
        batch: list[_Writer] = []
        try:
            await self._acquire_lock()
            try:
                await self._commit(batch)
                await self._checkpoint_if_due()
            finally:
                self._lock.release()
        except (PassingFault, StepwellError, sqlite3.Error, OSError) as error:
            # Nobody was served: then it is the same for all who wait.
            failed = batch or [self._queue.popleft() for _ in range(len(self._queue))]
            _answer(failed, error)

    async def _acquire_lock(self) -> None:
        """Wait for the file's lock. Raise what is wrong with the file if the lock is gone with its
        folder; a file that was moved alone is found out before the commit."""
        try:
            await self._lock.acquire()
        except PassingFault:
            self._file.require_same()
            raise

    async def _commit(self, batch: list[_Writer]) -> None:
        self._lane.quick_command("BEGIN IMMEDIATE")
        try:
            await self._serve(batch)
            await self._end_transaction()
        finally:
            await self._undo_unless_committed()
        _answer(batch, None)

    async def _undo_unless_committed(self) -> None:
        if self._lane.is_in_transaction:
            with suppress(PassingFault, StepwellError, sqlite3.Error):
                await self._lane.command("ROLLBACK")

    async def _end_transaction(self) -> None:
        self._file.require_same()
        await self._thread.commit()

    async def _serve(self, batch: list[_Writer]) -> None:
        until = self._clock.monotonic() + _LONGEST_BATCH
        while self._queue and len(batch) < _MOST_WRITES:
            writer = self._queue.popleft()
            if writer.turn.done():
                continue
            batch.append(writer)
            self._lane.quick_command("SAVEPOINT work")
            if not writer.turn.done():
                writer.turn.set_result(None)
            if not await writer.worked:
                self._lane.quick_command("ROLLBACK TO work")
            self._lane.quick_command("RELEASE work")
            if self._clock.monotonic() >= until:
                return

    async def _checkpoint_if_due(self) -> None:
        changes, now = self._lane.changes, self._clock.monotonic()
        many = changes - self._seen_changes >= _CHECKPOINT_CHANGES
        if many or now - self._checkpointed_at >= _CHECKPOINT_SECONDS:
            await self._lane.command("PRAGMA wal_checkpoint(PASSIVE)")
            self._seen_changes, self._checkpointed_at = changes, now


def _answer(writers: Iterable[_Writer], error: BaseException | None) -> None:
    for writer in writers:
        if error is not None:
            writer.fail(error)
        elif not writer.committed.done():
            writer.committed.set_result(None)
