"""One connection to PostgreSQL in a transaction, past SQLAlchemy's layers.

Trips to the server are what a transaction costs. So what gives no rows waits and goes along with
the next that does, or with the commit, all in one text; the beginning goes along with the first.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from sqlalchemy import ClauseElement, Insert, exc, text
from sqlalchemy.ext.asyncio import AsyncConnection

from stepwell.sessions.errors import ConflictError
from stepwell.stores.connection import Prepared, Row, Statements
from stepwell.stores.postgres.pool import PooledConnection, cut_after
from stepwell.stores.retries import Clash, PassingFault
from stepwell.stores.search_turns import SearchElsewhere, too_slow
from stepwell.stores.tables import metadata
from stepwell.stores.types import POSTGRESQL


class LostConnection(PassingFault):
    """The server is gone, or has cut the connection; all others may be dead as well."""


# Beside a lost connection: what passes by itself.
_PASSING = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.TooManyConnections,
    errors.InsufficientResources,
    errors.ObjectInUse,
)
_MOST_WAITING = 200
_SIZES = text(
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
    "WHERE c.relkind = 'r' AND c.relname IN "
    f"({', '.join(repr(name) for name in metadata.tables)})"
)


@contextmanager
def postgres_faults() -> Generator[None]:
    """Errors of the driver, sorted: those that pass, clashes, and the rest."""
    try:
        yield
    except (psycopg.Error, exc.DBAPIError) as error:
        raise _translate_error(error) from error


def _translate_error(error: Exception) -> Exception:
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    said = str(cause).strip()
    if isinstance(cause, errors.DiskFull):
        return PassingFault(said, reason="its disk is full. Free some space")
    if isinstance(cause, _PASSING):
        return PassingFault(said)
    if isinstance(cause, errors.UniqueViolation):
        return Clash(f"it is there already: {said}")
    if isinstance(cause, errors.ForeignKeyViolation):
        return ConflictError("what it belongs to was deleted", code="gone")
    code = getattr(cause, "sqlstate", None) or ""
    # Class 08 is the connection, 57P a server that ends or starts, 25P03 a transaction that stood
    # idle too long; without a code it never came to an answer.
    lost = isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError) and not code
    if lost or code.startswith(("08", "57P")) or code in {"25P03", "25P04"}:
        return LostConnection(said)
    return error


class PostgresConnection:
    """See ``lane.DatabaseConnection``."""

    def __init__(
        self,
        held: PooledConnection,
        statements: Statements,
        *,
        begin: str,
        careful: bool = False,
        may_search: bool = True,
    ) -> None:
        self._may_search = may_search
        self._connection, self._driver, self._statements = held.connection, held.driver, statements
        self.careful = careful
        self._writer = psycopg.AsyncClientCursor(held.driver)
        self._waiting = [begin]
        self._begun = False

    @property
    def dialect(self) -> str:
        """PostgreSQL."""
        return POSTGRESQL

    @property
    def connection(self) -> AsyncConnection:
        """The same as SQLAlchemy knows it. What is done there may come before what waits here."""
        return self._connection

    @property
    def _is_idle(self) -> bool:
        return self._driver.pgconn.transaction_status == TransactionStatus.IDLE

    async def rows(self, statement: ClauseElement, values: Mapping[str, Any], /) -> list[Row]:
        """Run a statement and fetch what it gives."""
        return await self._fetch(self._statements.prepare(statement), values)

    async def scan(
        self, statement: ClauseElement, values: Mapping[str, Any], /, *, keep: bool = False
    ) -> list[Row]:
        """The same for one that was put together for this one use."""
        return await self._fetch(self._statements.prepare_if(keep, statement), values)

    async def search(
        self, statement: ClauseElement, values: Mapping[str, Any], seconds: float, /
    ) -> list[Row]:
        """The same for one that may take long; the server ends it after so many seconds."""
        if not self._may_search:
            raise SearchElsewhere
        self._waiting.append(f"SET LOCAL statement_timeout = {ceil(seconds * 1000)}")
        try:
            found = await self.scan(statement, values)
        except PassingFault as fault:
            if isinstance(fault.__cause__, errors.QueryCanceled):
                raise too_slow(seconds) from None
            raise
        self._waiting.append("SET LOCAL statement_timeout TO DEFAULT")
        return found

    async def bundle(self, adding: Insert, rows: Sequence[Row], /) -> Collection[str]:
        """Add those of these few rows whose id is not there; gives the ids of those added."""
        if self.careful:
            added = await self._fetch(*self._statements.bundle_insert(adding, rows))
            return [str(row[0]) for row in added]
        await self.add_all(adding, rows)
        return [row[0] for row in rows]

    async def add_all(self, adding: Insert, rows: Sequence[Row], /) -> None:
        """Add these few rows, none of which is there."""
        await self._fetch(*self._statements.bundle_insert(adding, rows, unless_there=False))

    async def commit(self) -> None:
        """End the transaction."""
        if self._begun or len(self._waiting) > 1 or not self._is_idle:
            self._waiting.append("COMMIT")
            await self._send()

    async def database_bytes(self) -> int:
        """Our tables with their indexes."""
        with postgres_faults():
            return int((await self._connection.execute(_SIZES)).scalar() or 0)

    async def _fetch(self, prepared: Prepared, values: Mapping[str, Any]) -> list[Row]:
        given = prepared.values(values)
        if prepared.gives_rows and not self._waiting:
            with postgres_faults(), cut_after(self._driver):
                cursor = await self._driver.execute(
                    prepared.text,  # type: ignore[arg-type] - made by SQLAlchemy, no literal
                    given,
                )
                return await cursor.fetchall()
        self._waiting.append(self._writer.mogrify(prepared.text, given))  # type: ignore[arg-type]
        if prepared.gives_rows:
            return await (await self._send()).fetchall()
        if len(self._waiting) >= _MOST_WAITING:
            await self._send()
        return []

    async def _begin(self) -> None:
        self._begun = True
        if self._is_idle:
            # Otherwise the driver would begin as well, on a trip of its own.
            await self._driver.set_autocommit(True)
        else:
            # Somebody did so through SQLAlchemy's connection.
            del self._waiting[0]

    async def _send(self) -> "psycopg.AsyncCursor[Any]":
        """All that waits, in one trip; a cursor on what the last of it gives."""
        with postgres_faults(), cut_after(self._driver):
            if not self._begun:
                await self._begin()
            text, self._waiting = ";\n".join(self._waiting), []
            cursor = self._driver.cursor()
            # Made by SQLAlchemy, with values that the driver has quoted.
            await cursor.execute(text.encode(), prepare=False)
            while cursor.nextset():
                pass
            return cursor
