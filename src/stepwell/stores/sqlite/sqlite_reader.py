"""A store that only looks into a SQLite file: it makes no file and takes no lock.

A file that nobody has open is read as it is, without SQLite's own files beside it; if somebody
writes to it meanwhile, it is read again. One that somebody has open is read beside them: a
connection that can't write never checkpoints, so it needs no lock (see ``file_lock``).
"""

import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from msgspec import Struct
from sqlalchemy.exc import DBAPIError

from stepwell.clock import Clock
from stepwell.errors import ConfigurationError
from stepwell.sessions.ports import Transaction
from stepwell.stores.bus.remote_bus import Link
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.schema_version import check_or_migrate
from stepwell.stores.sqlite.sqlite_connection import SqliteFaults
from stepwell.stores.sqlite.sqlite_store import SqliteStore

Result = TypeVar("Result")


class _Seen(Struct, frozen=True):
    """By what it is noticed that somebody writes to a file."""

    has_log: bool
    """SQLite's own, which is there as long as somebody has the file open."""
    file: int
    size: int
    changed_at: int


class SqliteReader(SqliteStore):
    """See ``sessions.ports.Store``; nothing can be written."""

    _pragmas = ("temp_store=MEMORY",)

    def __init__(self, path: Path, clock: Clock, link: Link | None = None) -> None:
        super().__init__(path, clock, link)
        self._seen = self._look()
        self._is_shared = self._seen.has_log
        self._opened.address = self._address

    @classmethod
    def _resolve_path(cls, path: Path) -> Path:
        path = Path(os.path.realpath(path))
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise ConfigurationError(
                f"the database {path} can't be opened: {error.strerror}. Name a file that this "
                "user may read"
            ) from error
        return path

    async def write(
        self,
        work: Callable[[Transaction], Awaitable[Result]],  # noqa: ARG002 - the port's signature
        /,
        *,
        name: str,
    ) -> Result:
        """Raises ``RuntimeError``."""
        raise RuntimeError(f"write {name!r} was asked for, and {self._path} is only read")

    async def read(self, work: Callable[[Transaction], Awaitable[Result]], /) -> Result:
        """Run it on a consistent view."""
        try:
            result = await self._result(work)
        except DamagedDataError:
            if not self._has_changed():
                raise
        else:
            if not self._has_changed():
                return result
        # From now on beside whoever writes. Reads that go on have their connections still.
        self._is_shared = True
        self._idle, self._idle_searchers = [], []
        return await self._result(work)

    async def _result(self, work: Callable[[Transaction], Awaitable[Result]], /) -> Result:
        async def in_words(tx: Transaction) -> Result:
            with _faults_in_words(self._path):
                return await work(tx)

        return await super().read(in_words)

    async def check_writable(self) -> None:
        """Raises ``RuntimeError``."""
        raise RuntimeError(f"{self._path} is only read")

    def _require_file(self) -> None:
        """Nothing: opened read-only, a missing file is an error and never made."""

    async def close(self) -> None:
        """Let go of the file."""
        await self._open_readers.aclose()
        await self._engine.dispose()

    async def reopen(self) -> "SqliteStore":
        """Raises ``RuntimeError``: who only reads holds nothing that is to be renewed."""
        raise RuntimeError(f"{self._path} is only read")

    async def _prepare(self, migrate: bool) -> None:
        lane = await self._connect(query_only=True)
        try:
            await lane.command("PRAGMA schema_version")  # says it if it is no database at all
            with _faults_in_words(self._path):
                await check_or_migrate(lane.connection, migrate=migrate)
        finally:
            await lane.connection.close()

    def _address(self) -> str:
        how = "mode=ro" if self._is_shared else "mode=ro&immutable=1"
        return f"file:{quote(str(self._path))}?{how}"

    def _has_changed(self) -> bool:
        return not self._is_shared and self._look() != self._seen

    def _look(self) -> _Seen:
        status = self._path.stat()
        has_log = self._path.with_name(f"{self._path.name}-wal").exists()
        return _Seen(has_log, status.st_ino, status.st_size, status.st_mtime_ns)


@contextmanager
def _faults_in_words(path: Path) -> Generator[None]:
    """Errors of the driver, sorted as those of a lane are, where SQLAlchemy has wrapped them."""
    try:
        yield
    except DBAPIError as error:
        if error.orig is None:
            raise
        with SqliteFaults(path):
            raise error.orig from None
