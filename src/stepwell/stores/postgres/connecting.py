"""Pools of connections to a server, and what each connection is told when it is made."""

from typing import Any

import msgspec
from psycopg import AsyncConnection, IsolationLevel
from psycopg.types.json import set_json_loads
from sqlalchemy import URL, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

_SETTINGS = {
    "TimeZone": "UTC",
    # A worker that is frozen inside a transaction must not hold its rows for long.
    "idle_in_transaction_session_timeout": "4000",
    "statement_timeout": "10000",
    "lock_timeout": "8000",
}
CONNECT_SECONDS = 5
_WAIT_SECONDS = 15.0


class Pool:
    """Connections of one kind. After a fault none of the older ones is trusted any more."""

    def __init__(self, url: URL, *, size: int, read_only: bool) -> None:
        self._generation = 0
        self._read_only = read_only
        self.engine: AsyncEngine = create_async_engine(
            driver_url(url),
            pool_size=size,
            max_overflow=0,
            pool_timeout=_WAIT_SECONDS,
            pool_use_lifo=True,
            connect_args=connection_options(),
        )
        event.listen(self.engine.sync_engine, "connect", self._prepare)
        event.listen(self.engine.sync_engine, "checkout", self._trust)

    def distrust(self) -> None:
        """A connection was lost; the others are made anew when they are next used."""
        self._generation += 1

    def _prepare(self, connection: Any, record: Any) -> None:
        record.info["generation"] = self._generation
        driver: AsyncConnection[Any] = connection.driver_connection
        set_json_loads(msgspec.json.decode, driver)
        connection.run_async(self._set_isolation)

    async def _set_isolation(self, driver: "AsyncConnection[Any]") -> None:
        # One view for all statements of a read; a write sees what others commit meanwhile and
        # relies on its locks.
        if self._read_only:
            await driver.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            await driver.set_read_only(True)
        else:
            await driver.set_isolation_level(IsolationLevel.READ_COMMITTED)

    def _trust(self, _connection: Any, record: Any, _proxy: Any) -> None:
        if record.info.get("generation") != self._generation:
            raise DisconnectionError


def driver_url(url: URL) -> URL:
    """The URL with our driver in it."""
    return url.set(drivername="postgresql+psycopg")


def connection_options() -> dict[str, Any]:
    """What the server is told when a connection is made."""
    settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    return {
        "options": settings,
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "stepwell",
        # A server that vanished without a word is noticed.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15000,
    }
