"""Pools of connections to a server, and the options of each connection."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import msgspec
import psycopg
from msgspec import Struct
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.types.json import set_json_loads
from psycopg.types.string import TextLoader
from sqlalchemy import URL, NullPool, event, exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from stepwell.stores.retries import PassingFault

SETTINGS = {
    "TimeZone": "UTC",
    # Compiling a query costs more than any of ours takes.
    "jit": "off",
    # A worker that is frozen inside a transaction must not hold its rows for long.
    "idle_in_transaction_session_timeout": "4000",
    "statement_timeout": "9000",
    "lock_timeout": "7000",
}
"""Options that every connection sends to the server."""
CONNECT_SECONDS = 5
ANSWER_SECONDS = 10.0
"""A statement without an answer for so long is cut off: the server would have ended it by itself,
so nobody is there any more. Whoever forwards the connection may still acknowledge what is sent."""
_WAIT_SECONDS = 15.0
# One view for all statements of a read; a write sees what others commit meanwhile and relies on its
# locks.
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_CAN_ROLL_BACK = {
    TransactionStatus.IDLE,
    TransactionStatus.INTRANS,
    TransactionStatus.INERROR,
}


class PooledConnection(Struct, frozen=True, eq=False):
    """A connection in both its forms."""

    connection: AsyncConnection
    driver: "psycopg.AsyncConnection[Any]"
    generation: int


class Pool:
    """Connections of one kind. After a fault none of the older ones is trusted any more.

    Ours and not SQLAlchemy's, whose way in and out of its pool costs as much as a statement.
    """

    def __init__(self, url: URL, *, size: int, read_only: bool, is_pooled: bool) -> None:
        """``is_pooled`` says that PgBouncer or the like is behind the address, so that a prepared
        statement may not be there for the next transaction."""
        self._generation = 0
        self._read_only = read_only
        self._free = asyncio.Semaphore(size)
        self._idle: list[PooledConnection] = []
        self.begin = _BEGIN_READING if read_only else _BEGIN_WRITING
        options = connection_options()
        if is_pooled:
            options["prepare_threshold"] = None
        self.engine: AsyncEngine = create_async_engine(
            driver_url(url), poolclass=NullPool, connect_args=options
        )
        event.listen(self.engine.sync_engine, "connect", self._prepare)

    def distrust(self) -> None:
        """Replace all connections at their next use, because one was lost."""
        self._generation += 1

    @asynccontextmanager
    async def acquire(self) -> AsyncGenerator[PooledConnection]:
        """Hold a connection for the length of a block; uncommitted changes are rolled back."""
        await self._wait()
        try:
            held = await self._take_idle()
            try:
                yield held
            finally:
                if self._is_clean(held):
                    self._idle.append(held)
                else:
                    # Even if whoever had it is cancelled, and again while it waits here.
                    await _finish(self._clean(held))
        finally:
            self._free.release()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_WAIT_SECONDS if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError:
            raise PassingFault("all connections are in use") from None

    async def close(self) -> None:
        """Close all connections."""
        while self._idle:
            await self._idle.pop().connection.close()
        await self.engine.dispose()

    async def _take_idle(self) -> PooledConnection:
        while self._idle:
            held = self._idle.pop()
            if held.generation == self._generation:
                # The lane left it so: see there.
                await held.driver.set_autocommit(False)
                return held
            await _finish(held.connection.close())
        connection = await self.engine.connect()
        raw = await connection.get_raw_connection()
        return PooledConnection(connection, raw.driver_connection, self._generation)  # type: ignore[arg-type]

    def _is_clean(self, held: PooledConnection) -> bool:
        status = held.driver.pgconn.transaction_status
        is_over = status == TransactionStatus.IDLE and not held.connection.in_transaction()
        return is_over and held.generation == self._generation

    async def _clean(self, held: PooledConnection) -> None:
        """Roll back an open transaction, or close the connection."""
        try:
            # Otherwise the server is still at work for somebody who has left, or is gone.
            if held.driver.pgconn.transaction_status in _CAN_ROLL_BACK:
                with cut_after(held.driver):
                    await held.driver.rollback()
                    await held.connection.rollback()
        except (psycopg.Error, exc.DBAPIError, OSError):
            pass
        if self._is_clean(held):
            self._idle.append(held)
        else:
            await held.connection.invalidate()
            await held.connection.close()

    def _prepare(self, connection: Any, _record: Any) -> None:
        driver = connection.driver_connection
        set_json_loads(msgspec.json.decode, driver)
        # Ids are texts everywhere else; a state comes back to the letter (see ``stores.types``).
        for name in ("uuid", "json"):
            driver.adapters.register_loader(name, TextLoader)
        connection.run_async(self._set_isolation)

    async def _set_isolation(self, driver: "psycopg.AsyncConnection[Any]") -> None:
        # For whoever begins through SQLAlchemy's connection.
        if self._read_only:
            await driver.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            await driver.set_read_only(True)
        else:
            await driver.set_isolation_level(IsolationLevel.READ_COMMITTED)


async def _finish(work: Any) -> None:
    """Await the work to its end even if the caller is cancelled, then raise the cancellation."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                continue
        raise


def driver_url(url: URL) -> URL:
    """Return the URL with our driver's name."""
    return url.set(drivername="postgresql+psycopg")


def connection_options() -> dict[str, Any]:
    """Return the options of every new connection."""
    settings = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
    return {
        "options": settings,
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "stepwell",
        # A server that vanished without a word is noticed within 15 s.
        "keepalives_idle": 5,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 12000,
    }


async def connect(url: URL) -> "psycopg.AsyncConnection[Any]":
    """Open a connection outside of the pool."""
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return await psycopg.AsyncConnection.connect(address, autocommit=True, **connection_options())


@contextmanager
def cut_after(
    driver: "psycopg.AsyncConnection[Any]", seconds: float = ANSWER_SECONDS
) -> Generator[None]:
    """Cut the connection if the block takes longer, so that what waits in it raises
    ``psycopg.OperationalError``."""
    # Not by cancelling: the driver would then wait for the silent server to confirm it.
    timer = asyncio.get_running_loop().call_later(seconds, _cut, driver)
    try:
        yield
    finally:
        timer.cancel()


def _cut(driver: "psycopg.AsyncConnection[Any]") -> None:
    if not driver.closed:
        with suppress(OSError), socket.socket(fileno=os.dup(driver.pgconn.socket)) as cut:
            cut.shutdown(socket.SHUT_RDWR)
