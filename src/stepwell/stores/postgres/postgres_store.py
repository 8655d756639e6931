"""A store in a PostgreSQL server, for any number of processes."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext
from typing import TypeVar

from psycopg.errors import ReadOnlySqlTransaction
from sqlalchemy import URL, text

from stepwell.clock import Clock
from stepwell.sessions.bus import Bus
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Transaction
from stepwell.stores.bus.postgres_link import PostgresLink
from stepwell.stores.bus.remote_bus import Link, RemoteBus
from stepwell.stores.connection import Statements
from stepwell.stores.postgres.pool import Pool
from stepwell.stores.postgres.postgres_connection import (
    LostConnection,
    PostgresConnection,
    postgres_faults,
)
from stepwell.stores.retries import Clash, PassingFault, Retries, retry_passing_faults
from stepwell.stores.rows import Codecs
from stepwell.stores.schema_version import VERSION_TABLE, check_or_migrate
from stepwell.stores.search_turns import SearchElsewhere, SearchTurns
from stepwell.stores.transaction import SqlTransaction
from stepwell.stores.types import POSTGRESQL

Result = TypeVar("Result")
Work = Callable[[Transaction], Awaitable[Result]]

_WRITERS, _READERS = 10, 6
_SEARCHERS = 2
"""So many of the readers at most."""
# Any number will do, as long as no other program uses the same for its own locks.
_MIGRATION_LOCK = 7_283_640_118
_WRITE_NOTHING_NEW = text(f"UPDATE {VERSION_TABLE} SET version_num = version_num")


class PostgresStore:
    """See ``sessions.ports.Store``."""

    def __init__(self, url: URL, clock: Clock, link: Link | None = None) -> None:
        """``link`` carries the bus; without one the database does. One to PostgreSQL says that
        ``url`` is no place to listen: PgBouncer is behind it."""
        self._url, self._clock, self._link = url, clock, link
        is_pooled = isinstance(link, PostgresLink)
        self._writers = Pool(url, size=_WRITERS, read_only=False, is_pooled=is_pooled)
        self._readers = Pool(url, size=_READERS, read_only=True, is_pooled=is_pooled)
        self._searching = SearchTurns(_SEARCHERS)
        self._codecs = Codecs.of(POSTGRESQL)
        self._statements = Statements(self._writers.engine.dialect)
        self._bus = RemoteBus(PostgresLink(url) if link is None else link)

    @classmethod
    async def open(
        cls, url: URL, *, clock: Clock, migrate: bool, link: Link | None = None
    ) -> "PostgresStore":
        """Connect, and bring the tables to this version."""
        store = cls(url, clock, link)
        async with AsyncExitStack() as unless_ready:
            unless_ready.push_async_callback(store.close)
            await retry_passing_faults(lambda: store._migrate(migrate), clock, "open")
            unless_ready.pop_all()
        return store

    @property
    def bus(self) -> Bus:
        """Notifies all processes of changes."""
        return self._bus

    async def write(
        self, work: Callable[[Transaction], Awaitable[Result]], /, *, name: str
    ) -> Result:
        """Run it in a transaction. It has committed when this returns."""
        retries, careful = Retries(self._clock, name), False
        while True:
            try:
                result, topics = await self._once(self._writers, work, careful=careful)
            except (PassingFault, Clash) as fault:
                careful = careful or isinstance(fault, Clash)
                await retries.wait(fault)
            else:
                for topic in topics:
                    self._bus.publish(topic)
                return result

    async def read(self, work: Callable[[Transaction], Awaitable[Result]], /) -> Result:
        """Run it on a consistent view; it writes nothing."""
        retries, searching = Retries(self._clock), False
        while True:
            try:
                async with self._searching if searching else nullcontext():
                    return (await self._once(self._readers, work, may_search=searching))[0]
            except SearchElsewhere:
                # Where it waits for its turn, it holds no connection that others need.
                retries, searching = Retries(self._clock), True
            except (PassingFault, Clash) as fault:
                await retries.wait(fault)

    async def check_writable(self) -> None:
        """Commit a tiny write, without a second try. Raises ``StoreUnavailableError``."""
        try:
            await self._once(self._writers, lambda tx: tx.run(_WRITE_NOTHING_NEW, {}))
        except PassingFault as fault:
            raise StoreUnavailableError(
                f"the database can't be written: {fault}", reason=fault.reason
            ) from fault
        except ReadOnlySqlTransaction as error:
            raise StoreUnavailableError(
                f"the database can't be written: {error}", reason="it is read-only, as a standby is"
            ) from error

    async def change_marker(self) -> int | None:
        """Only a query can tell."""
        return None

    async def reopen(self) -> "PostgresStore":
        """See ``sessions.ports.Store``."""
        return PostgresStore(self._url, self._clock, self._link)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._bus.close()
        await self._writers.close()
        await self._readers.close()

    async def _once(
        self, pool: Pool, work: Work[Result], *, careful: bool = False, may_search: bool = True
    ) -> tuple[Result, list[str]]:
        try:
            with postgres_faults():
                async with pool.acquire() as held:
                    lane = PostgresConnection(
                        held,
                        self._statements,
                        begin=pool.begin,
                        careful=careful,
                        may_search=may_search,
                    )
                    transaction = SqlTransaction(lane, self._codecs)
                    result = await work(transaction)
                    await transaction.write_counters()
                    await lane.commit()
                    return result, list(transaction.topics)
        except LostConnection:
            self._writers.distrust()
            self._readers.distrust()
            raise

    async def _migrate(self, migrate: bool) -> None:
        try:
            with postgres_faults():
                async with self._writers.engine.connect() as connection:
                    # Processes that start at once wait for the one that came first.
                    lock = text("SELECT pg_advisory_xact_lock(:key)")
                    await connection.execute(lock, {"key": _MIGRATION_LOCK})
                    await check_or_migrate(connection, migrate=migrate)
        except LostConnection:
            self._writers.distrust()
            raise
