"""Frames through PostgreSQL: NOTIFY, outside of the transactions of the store."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from sqlalchemy import URL

from stepwell.stores.bus.remote_bus import SendFrames
from stepwell.stores.postgres.connecting import connection_options

_CHANNEL = "stepwell"
_NOTIFY = "SELECT pg_notify(%s, frame) FROM unnest(%s::text[]) AS frame"


class PostgresLink:
    """See ``remote_bus.Link``."""

    name = "PostgreSQL"
    # A notification holds 8,000 bytes at most.
    max_frame_bytes = 7_500
    faults = (psycopg.Error, OSError)

    def __init__(self, url: URL) -> None:
        self._address = url.set(drivername="postgresql").render_as_string(hide_password=False)

    @asynccontextmanager
    async def sending(self) -> AsyncGenerator[SendFrames]:
        """Connect to send frames. Losing one with the server's disk costs nothing."""
        async with await self._connect() as connection:
            await connection.execute("SET synchronous_commit = off")

            async def send(frames: Sequence[bytes]) -> None:
                await connection.execute(_NOTIFY, (_CHANNEL, [frame.decode() for frame in frames]))

            yield send

    @asynccontextmanager
    async def receiving(self) -> AsyncGenerator[AsyncIterator[str]]:
        """Connect to receive frames."""
        async with await self._connect() as connection:
            await connection.execute(f"LISTEN {_CHANNEL}")
            yield (notification.payload async for notification in connection.notifies())

    async def _connect(self) -> "psycopg.AsyncConnection[Any]":
        options: dict[str, Any] = {**connection_options(), "autocommit": True}
        return await psycopg.AsyncConnection.connect(self._address, **options)
