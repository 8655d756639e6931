"""A store in one SQLite file: one connection that writes, a few that read."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from stepwell.clock import Clock
from stepwell.errors import ConfigurationError
from stepwell.sessions.bus import Bus
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Transaction
from stepwell.stores.bus.local_bus import LocalBus
from stepwell.stores.bus.remote_bus import Link, RemoteBus
from stepwell.stores.connection import Statements
from stepwell.stores.retries import Clash, PassingFault, Retries, retry_passing_faults
from stepwell.stores.rows import Codecs
from stepwell.stores.schema_version import check_or_migrate
from stepwell.stores.search_turns import SearchElsewhere, SearchTurns
from stepwell.stores.sqlite.database_file import DatabaseFile
from stepwell.stores.sqlite.file_lock import FileLock
from stepwell.stores.sqlite.group_commit import GroupCommit
from stepwell.stores.sqlite.sqlite_connection import SqliteConnection, SqliteDriver
from stepwell.stores.transaction import SqlTransaction
from stepwell.stores.types import SQLITE

Result = TypeVar("Result")
logger = logging.getLogger("stepwell.stores")

_READERS = 4
_SEARCHERS = 1
_BUSY_SECONDS = 5.0
_OTHERS = 0o077
_PRAGMAS = (
    # Of new files: rows are small, and a commit writes whole pages. Others keep the size they have.
    "page_size=2048",
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    # Ours to do, under the lock: see file_lock.
    "wal_autocheckpoint=0",
    "journal_size_limit=67108864",
    "temp_store=MEMORY",
)
_inside_write: ContextVar[bool] = ContextVar("stepwell_inside_write", default=False)


class SqliteStore:
    """See ``sessions.ports.Store``."""

    _pragmas: Sequence[str] = _PRAGMAS

    def __init__(self, path: Path, clock: Clock, link: Link | None = None) -> None:
        """``link`` carries the bus to other processes; without one it stays in this one."""
        self._path, self._clock, self._link = path, clock, link
        self._opened = ConnectionFactory()
        self._engine = _engine(path, self._opened)
        self._codecs = Codecs.of(SQLITE)
        self._statements = Statements(self._engine.dialect)
        self._lock = FileLock(path.with_name(path.name + "-lock"))
        self._bus: Bus = LocalBus() if link is None else RemoteBus(link)
        self._open_readers = AsyncExitStack()
        self._idle: list[SqliteConnection] = []
        self._watcher: SqliteConnection | None = None
        self._reading = asyncio.Semaphore(_READERS)
        self._idle_searchers: list[SqliteConnection] = []
        self._searching = SearchTurns(_SEARCHERS)
        self._writer: SqliteConnection
        self._file: DatabaseFile
        self._group: GroupCommit

    @classmethod
    async def open(
        cls, path: Path, *, clock: Clock, migrate: bool, link: Link | None = None
    ) -> "SqliteStore":
        """Open or make that file; its folders are made as well."""
        store = cls(cls._resolve_path(path), clock, link)
        await retry_passing_faults(lambda: store._prepare(migrate), clock, "open")
        return store

    @classmethod
    def _resolve_path(cls, path: Path) -> Path:
        return _private(path)

    @property
    def bus(self) -> Bus:
        """Notifies readers of changes."""
        return self._bus

    async def write(
        self, work: Callable[[Transaction], Awaitable[Result]], /, *, name: str
    ) -> Result:
        """Run it in a transaction. It has committed when this returns."""
        if _inside_write.get():
            raise RuntimeError(f"write {name!r} was asked for inside of another write")
        retries, careful = Retries(self._clock, name), False
        while True:
            try:
                return await self._write_once(work, careful=careful)
            except (PassingFault, Clash) as fault:
                careful = careful or isinstance(fault, Clash)
                await retries.wait(fault)

    async def _write_once(
        self, work: Callable[[Transaction], Awaitable[Result]], *, careful: bool
    ) -> Result:
        results: list[Result] = []
        transaction = SqlTransaction(self._writer, self._codecs)

        async def run() -> None:
            self._writer.careful = careful
            token = _inside_write.set(True)
            try:
                results.append(await work(transaction))
                await transaction.write_counters()
            finally:
                _inside_write.reset(token)

        await self._group.write(run)
        for topic in transaction.topics:
            self._bus.publish(topic)
        return results[0]

    async def read(self, work: Callable[[Transaction], Awaitable[Result]], /) -> Result:
        """Run it on a consistent view; it writes nothing."""
        retries, searching = Retries(self._clock), False
        while True:
            try:
                async with self._reader(searching=searching) as lane:
                    return await work(SqlTransaction(lane, self._codecs))
            except SearchElsewhere:
                # Where it waits for its turn, it holds no connection that others need.
                retries, searching = Retries(self._clock), True
            except (PassingFault, Clash) as fault:
                await retries.wait(fault)

    async def check_writable(self) -> None:
        """Commit a tiny write, without a second try. Raises ``StoreUnavailableError``."""
        self._file.require_same()
        self._file.require_room()

        async def change_header() -> None:
            # Nobody uses this number; setting it writes the first page, whatever it was.
            self._writer.quick_command("PRAGMA user_version = 0")

        try:
            await self._group.write(change_header)
        except PassingFault as fault:
            raise StoreUnavailableError(
                f"the database {self._path} can't be written: {fault}", reason=fault.reason
            ) from fault

    async def change_marker(self) -> int | None:
        """Return SQLite's own number, which a commit of any other connection changes."""
        if self._watcher is None:
            self._watcher = await self._new_reader(searching=False)
        return self._watcher.data_version()

    async def reopen(self) -> "SqliteStore":
        """See ``sessions.ports.Store``. Its writes come next when one of this store ends, before
        those of other processes."""
        self._require_file()
        store = SqliteStore(self._path, self._clock, self._link)
        store._lock, store._file = self._lock.heir(), self._file
        # Without the lock: beside this store's connection, opening another one writes nothing.
        store._writer = await retry_passing_faults(
            lambda: _open_whole(store._connect()), self._clock, "open"
        )
        store._group = GroupCommit(store._writer, store._lock, store._file, self._clock)
        return store

    async def close(self) -> None:
        """Finish the writes that wait, then let go of the file."""
        await self._group.close()
        await self._bus.close()
        await self._open_readers.aclose()
        # The last connection to close checkpoints, so the lock is held.
        await retry_passing_faults(self._lock.acquire, self._clock, "close")
        try:
            await self._writer.connection.close()
        finally:
            self._lock.release()
            await self._engine.dispose()

    def _require_file(self) -> None:
        """Opening it by its name would make a new, empty one where it was."""
        self._file.require_same()

    async def _prepare(self, migrate: bool) -> None:
        await self._lock.acquire()
        try:
            async with AsyncExitStack() as unless_ready:
                lane = await self._connect()
                unless_ready.push_async_callback(lane.connection.close)
                await check_or_migrate(lane.connection, migrate=migrate)
                unless_ready.pop_all()
        finally:
            self._lock.release()
        self._writer = lane
        self._file = DatabaseFile(self._path)
        self._group = GroupCommit(lane, self._lock, self._file, self._clock)

    async def _connect(self, *, query_only: bool = False) -> SqliteConnection:
        async with AsyncExitStack() as unless_ready:
            async with self._opened.one_by_one:
                connection = await self._engine.connect()
                unless_ready.push_async_callback(connection.close)
                driver = await self._opened.driver(connection)
            lane = SqliteConnection(connection, driver, self._path, self._statements)
            for pragma in (*self._pragmas, f"query_only={int(query_only)}"):
                await lane.command(f"PRAGMA {pragma}")
            if not query_only:
                # It begins transactions on the loop: what another program holds is tried again.
                await lane.command("PRAGMA busy_timeout=0")
            lane.know_letters()
            unless_ready.pop_all()
        return lane

    @asynccontextmanager
    async def _reader(self, *, searching: bool) -> AsyncGenerator[SqliteConnection]:
        idle = self._idle_searchers if searching else self._idle
        async with self._searching if searching else self._reading:
            lane = idle.pop() if idle else await self._new_reader(searching)
            try:
                lane.quick_command("BEGIN")
                yield lane
            finally:
                idle.append(lane)
                lane.quick_command("ROLLBACK")

    async def _new_reader(self, searching: bool) -> SqliteConnection:
        self._require_file()
        lane = await _open_whole(self._connect(query_only=True))
        lane.may_search = searching
        self._open_readers.push_async_callback(lane.connection.close)
        return lane


async def _open_whole(opening: Coroutine[Any, Any, SqliteConnection]) -> SqliteConnection:
    """Open a connection. A thread opens it, which can't be interrupted: if the caller is cancelled
    meanwhile, what was opened is closed and not lost."""
    opened = asyncio.ensure_future(opening)
    try:
        return await asyncio.shield(opened)
    except asyncio.CancelledError:
        await (await opened).connection.close()
        raise


class ConnectionFactory:
    """Catches each connection as the driver makes it, so that it can be used without a detour."""

    def __init__(self) -> None:
        self.one_by_one = asyncio.Lock()
        self.address: Callable[[], str] | None = None
        """What to open instead of the path, as a URI."""
        self._newest: sqlite3.Connection

    def __call__(self, path: str, *arguments: Any, **options: Any) -> sqlite3.Connection:
        if self.address is not None:
            path, options = self.address(), {**options, "uri": True}
        self._newest = sqlite3.Connection(path, *arguments, **options)
        return self._newest

    async def driver(self, connection: AsyncConnection) -> SqliteDriver:
        """The newest connection in both its forms."""
        thread: Any = (await connection.get_raw_connection()).driver_connection
        return SqliteDriver(self._newest, thread)


def _engine(path: Path, opened: ConnectionFactory) -> AsyncEngine:
    return create_async_engine(
        f"sqlite+aiosqlite:///{path}",
        poolclass=NullPool,
        connect_args={
            # The driver begins no transactions of its own.
            "isolation_level": None,
            "timeout": _BUSY_SECONDS,
            "cached_statements": 256,
            "factory": opened,
            # Used by its thread and by ours, in turn.
            "check_same_thread": False,
        },
    )


def _private(path: Path) -> Path:
    """The file is its owner's only: it holds what people said.

    Under its one true path, so that the lock beside it is the same for all who open it.
    """
    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for end in ("", "-wal", "-shm"):
            _hide(path.with_name(path.name + end))
    except OSError as error:
        raise ConfigurationError(
            f"the database {path} can't be opened: {error.strerror}. Name a file in a folder that "
            "this user may write to"
        ) from error
    return path


def _hide(path: Path) -> None:
    try:
        if path.stat().st_mode & _OTHERS:
            path.chmod(0o600)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning(
            "%s is open to other users of this machine and can't be made private: %s. Let its "
            "owner do `chmod 600`, or use a file of this user",
            path,
            error.strerror,
        )
