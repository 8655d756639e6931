"""Jobs in Procrastinate's tables, written as part of our own transaction.

A job says only which execution to look at. At most one waits for each; the worker that fetches it
claims the execution, or finds that there is nothing to do.
"""

import json

import psycopg
from procrastinate.schema import SchemaManager
from sqlalchemy import text

from stepwell.sessions.ports import Transaction

QUEUE = "stepwell"
TASK = "stepwell.execute"

SOON = 0
SOONER = 1
"""For what waited long enough: before all that waits in the queue."""

_SCHEMA_LOCK = 0x5E7_0C4E
"""An advisory lock's key: one process at a time makes the tables."""

# Not the function procrastinate_defer_jobs: it fails on a double, and a failed statement would cost
# a savepoint around every send.
_INSERT = text(
    "INSERT INTO procrastinate_jobs (queue_name, task_name, priority, queueing_lock, args) "
    "VALUES (:queue, :task, :priority, :lock, CAST(:args AS jsonb)) ON CONFLICT DO NOTHING"
)

# Not to_regclass: it remembers within a transaction that there was no table.
_THERE = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class
    WHERE relname = 'procrastinate_jobs' AND pg_catalog.pg_table_is_visible(oid)
)
"""


class ProcrastinateJobs:
    """The queue on PostgreSQL; a rollback leaves neither row nor job."""

    def __init__(self, store_url: str) -> None:
        self._conninfo = conninfo(store_url)
        self._is_there = False

    async def enqueue(self, transaction: Transaction, execution_id: str, /) -> None:
        """A job, as part of the transaction, unless one waits already."""
        await self.ensure_tables()
        await insert_job(transaction, execution_id, SOON)

    async def ensure_tables(self) -> None:
        """Make Procrastinate's tables if they are not there yet."""
        if not self._is_there:
            await ensure_tables(self._conninfo)
            self._is_there = True


async def insert_job(transaction: Transaction, execution_id: str, priority: int) -> None:
    """A job for that execution, unless one waits already."""
    values = {
        "queue": QUEUE,
        "task": TASK,
        "priority": priority,
        "lock": queueing_lock(execution_id),
        "args": json.dumps({"execution_id": execution_id}),
    }
    await transaction.run(_INSERT, values)


def queueing_lock(execution_id: str) -> str:
    """What at most one waiting job has."""
    return f"{TASK}:{execution_id}"


async def ensure_tables(address: str) -> None:
    """Make Procrastinate's tables; safe with many processes that begin at once.

    On a connection of its own: whoever enqueues is in the middle of a transaction, and its rollback
    must not take the tables away from others.
    """
    async with await psycopg.AsyncConnection.connect(address) as connection:
        if await _is_there(connection):
            return
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        if not await _is_there(connection):
            await connection.execute(SchemaManager.get_schema())


def conninfo(store_url: str) -> str:
    """The address as the driver takes it.

    >>> conninfo("postgresql+psycopg://ada@127.0.0.1/db")
    'postgresql://ada@127.0.0.1/db'
    """
    scheme, separator, rest = store_url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


async def _is_there(connection: psycopg.AsyncConnection) -> bool:
    found = await connection.execute(_THERE)
    row = await found.fetchone()
    return bool(row and row[0])
