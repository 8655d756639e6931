"""One connection to a SQLite file: each statement is one trip to the connection's thread."""

import asyncio
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiosqlite
from msgspec import Struct
from sqlalchemy import ClauseElement, Insert
from sqlalchemy.ext.asyncio import AsyncConnection

from stepwell.sessions.errors import ConflictError
from stepwell.stores.connection import Row, Statements
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.retries import Clash, PassingFault
from stepwell.stores.search_turns import SearchElsewhere, too_slow
from stepwell.stores.session_queries import contains
from stepwell.stores.sqlite.lock_holders import describe_lock_holders
from stepwell.stores.types import SQLITE

_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_UNIQUE = {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}
_FOREIGN = sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
_AGAIN_SECONDS = 0.02


class SqliteDriver(Struct, frozen=True, eq=False):
    """One connection in both its forms."""

    direct: sqlite3.Connection
    thread: aiosqlite.Connection


class SqliteFaults:
    """A block in which errors of the driver are sorted: those that pass, those that don't, and
    damage. A class, because every statement goes through it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, sqlite3.DatabaseError):
            self._raise_sorted(error)

    def _raise_sorted(self, error: sqlite3.DatabaseError) -> None:
        path, code = self._path, getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in _PASSING:
            raise _passing_fault(path, error, code & 0xFF) from error
        if code & 0xFF in _DAMAGED:
            raise DamagedDataError(
                f"{path} is damaged, or no SQLite database: {error}. Restore it from a backup, or "
                "save what can be saved with `sqlite3 file .recover`"
            ) from error
        if code in _UNIQUE:
            raise Clash(f"it is there already: {error}") from error
        if code == _FOREIGN:
            raise ConflictError("what it belongs to was deleted", code="gone") from error


def _passing_fault(path: Path, error: sqlite3.DatabaseError, code: int) -> PassingFault:
    if code == sqlite3.SQLITE_FULL:
        return PassingFault(str(error), reason="its disk is full. Free some space")
    if code != sqlite3.SQLITE_BUSY:
        return PassingFault(str(error))
    # A program other than Stepwell: ours hold the lock beside the file before they write.
    holder = describe_lock_holders([path.with_name(path.name + end) for end in ("-shm", "")])
    reason = f"{holder} holds its write lock"
    return PassingFault(f"{error}: {reason}", reason=reason)


class SqliteConnection:
    """See ``lane.DatabaseConnection``.

    A trip to the connection's thread and back takes longer than a quick statement does, by far. So
    those run at once; what waits for the disk or for a lock, or scans, is done by the thread.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        driver: "SqliteDriver",
        path: Path,
        statements: Statements,
    ) -> None:
        self._connection, self._path, self._statements = connection, path, statements
        self._direct, self._thread = driver.direct, driver.thread
        self._faults = SqliteFaults(path)
        self.may_search = True
        self.careful = True

    @property
    def dialect(self) -> str:
        """SQLite."""
        return SQLITE

    @property
    def connection(self) -> AsyncConnection:
        """The same as SQLAlchemy knows it."""
        return self._connection

    @property
    def changes(self) -> int:
        """How many rows it has changed since it was opened."""
        return self._direct.total_changes

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction was begun and neither committed nor undone."""
        return self._direct.in_transaction

    async def rows(self, statement: ClauseElement, values: Mapping[str, Any], /) -> list[Row]:
        """Run a statement that is quick, by its index, and fetch what it gives."""
        prepared = self._statements.prepare(statement)
        with self._faults:
            return self._direct.execute(prepared.text, prepared.values(values)).fetchall()

    async def scan(
        self, statement: ClauseElement, values: Mapping[str, Any], /, *, keep: bool = False
    ) -> list[Row]:
        """The same for one that may take its time, or was put together for this one use."""
        prepared = self._statements.prepare_if(keep, statement)
        with self._faults:
            found = await self._thread.execute_fetchall(prepared.text, prepared.values(values))
            return list(found)

    async def search(
        self, statement: ClauseElement, values: Mapping[str, Any], seconds: float, /
    ) -> list[Row]:
        """The same for one that may take long; it is interrupted after so many seconds."""
        if not self.may_search:
            raise SearchElsewhere
        scanning = asyncio.ensure_future(self.scan(statement, values))
        loop = asyncio.get_running_loop()

        def end() -> None:
            nonlocal ending
            # Again and again: on a busy machine the thread may not have begun, and only what
            # runs is interrupted.
            self._direct.interrupt()
            ending = loop.call_later(_AGAIN_SECONDS, end)

        ending = loop.call_later(seconds, end)
        try:
            return await asyncio.shield(scanning)
        except asyncio.CancelledError:
            self._direct.interrupt()
            # The thread still uses the connection; whoever had it next would stop the loop.
            await _wait_for_end(scanning)
            raise
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
                raise
            raise too_slow(seconds) from None
        finally:
            ending.cancel()

    async def bundle(self, adding: Insert, rows: Sequence[Row], /) -> Collection[str]:
        """Add those of these few rows whose id is not there; gives the ids of those added."""
        if not self.careful:
            await self.add_all(adding, rows)
            return [row[0] for row in rows]
        prepared, values = self._statements.bundle_insert(adding, rows)
        with self._faults:
            return [row[0] for row in self._direct.execute(prepared.text, values)]

    async def add_all(self, adding: Insert, rows: Sequence[Row], /) -> None:
        """Add these few rows, none of which is there."""
        prepared, values = self._statements.bundle_insert(adding, rows, unless_there=False)
        with self._faults:
            self._direct.execute(prepared.text, values)

    def quick_command(self, text: str) -> None:
        """Run a bare command that waits for nothing, such as SAVEPOINT."""
        with self._faults:
            self._direct.execute(text)

    def data_version(self) -> int:
        """Return SQLite's number of the file's version: it reads no page and waits for nothing."""
        with self._faults:
            return self._direct.execute("PRAGMA data_version").fetchone()[0]

    async def command(self, text: str) -> list[Row]:
        """Run a bare command that may wait, such as COMMIT."""
        with self._faults:
            return list(await self._thread.execute_fetchall(text))

    def commit(self) -> None:
        """Commit. It waits for the disk, so call it in a thread."""
        with self._faults:
            self._direct.execute("COMMIT")

    def know_letters(self) -> None:
        """What a search needs."""
        self._direct.create_function("contains", 2, contains, deterministic=True)

    async def database_bytes(self) -> int:
        """The file and its log."""
        return sum(_size(self._path.with_name(self._path.name + end)) for end in ("", "-wal"))


async def _wait_for_end(task: "asyncio.Future[list[Row]]") -> None:
    """Wait for it to its end, also if whoever waits is cancelled once more."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
