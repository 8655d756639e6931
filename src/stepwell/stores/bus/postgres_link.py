"""Frames through PostgreSQL: NOTIFY, outside of the transactions of the store."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from sqlalchemy import URL

from stepwell.stores.bus.remote_bus import SendFrames
from stepwell.stores.postgres.pool import connect, cut_after

_CHANNEL = "stepwell"
_SILENT_SECONDS = 5.0
"""After so long without a notification the server is asked for a sign of life."""
_NOTIFY = "SELECT pg_notify(%s, frame) FROM unnest(%s::text[]) AS frame"


class PostgresLink:
    """See ``remote_bus.Link``."""

    name = "PostgreSQL"
    # A notification holds 8,000 bytes at most.
    max_frame_bytes = 7_500
    faults = (psycopg.Error, OSError)

    def __init__(self, url: URL) -> None:
        self._url = url

    @asynccontextmanager
    async def open_sender(self) -> AsyncGenerator[SendFrames]:
        """Connect to send frames. Losing one with the server's disk costs nothing."""
        async with await connect(self._url) as connection:
            with cut_after(connection):
                await connection.execute("SET synchronous_commit = off")

            async def send(frames: Sequence[bytes]) -> None:
                with cut_after(connection):
                    await connection.execute(
                        _NOTIFY, (_CHANNEL, [frame.decode() for frame in frames])
                    )

            yield send

    @asynccontextmanager
    async def open_receiver(self) -> AsyncGenerator[AsyncIterator[str]]:
        """Connect to receive frames."""
        async with await connect(self._url) as connection:
            with cut_after(connection):
                await connection.execute(f"LISTEN {_CHANNEL}")
            yield _frames(connection)


async def _frames(connection: "psycopg.AsyncConnection[Any]") -> AsyncGenerator[str, None]:
    while True:
        async for notification in connection.notifies(timeout=_SILENT_SECONDS):
            yield notification.payload
        # One that says nothing may be dead behind something that forwards it.
        with cut_after(connection, _SILENT_SECONDS):
            await connection.execute("SELECT 1")
