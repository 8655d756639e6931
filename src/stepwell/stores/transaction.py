"""All rows in one transaction, and what to publish after its commit."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ClauseElement
from sqlalchemy.ext.asyncio import AsyncConnection

from stepwell.stores.connection import DatabaseConnection
from stepwell.stores.execution_rows import ExecutionRowsMixin
from stepwell.stores.follower_rows import FollowerRowsMixin
from stepwell.stores.rows import Codecs
from stepwell.stores.snapshot_rows import SnapshotRowsMixin
from stepwell.stores.upkeep_rows import UpkeepRowsMixin
from stepwell.stores.worker_rows import WorkerRowsMixin


class SqlTransaction(
    ExecutionRowsMixin, WorkerRowsMixin, SnapshotRowsMixin, UpkeepRowsMixin, FollowerRowsMixin
):
    """See ``sessions.ports.Transaction``."""

    def __init__(self, lane: DatabaseConnection, codecs: Codecs) -> None:
        self.topics: dict[str, None] = {}
        super().__init__(lane, codecs, self.tell)

    @property
    def connection(self) -> AsyncConnection:
        """SQLAlchemy's connection, in this transaction."""
        return self._lane.connection

    async def run(self, statement: ClauseElement, values: Mapping[str, Any], /) -> None:
        """A statement of SQLAlchemy's that gives no rows; it is kept, so give it as a constant."""
        await self._lane.rows(statement, values)

    def tell(self, topic: str, /) -> None:
        """Publish that topic on the bus after the commit."""
        self.topics[topic] = None
