"""The bus of all processes on one PostgreSQL: NOTIFY, outside of transactions and in bundles.

Who waits in the same process is told at once. After a lost connection everybody is told, since
nobody knows what was missed.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from sqlalchemy import URL

from stepwell.clock import Clock
from stepwell.ids import new_id
from stepwell.stores.local_bus import LocalBus, LocalSubscription
from stepwell.stores.postgres.connecting import connection_options

_CHANNEL = "stepwell"
_BUNDLE_SECONDS = 0.02
# A notification holds 8,000 bytes at most.
_MOST_BYTES = 7_500
_AGAIN_SECONDS = 0.5
_READY_SECONDS = 5.0
_LAST_WORDS_SECONDS = 1.0


class PostgresBus:
    """See ``sessions.ports.Bus``."""

    def __init__(self, url: URL, clock: Clock) -> None:
        options = {**connection_options(), "autocommit": True}
        self._address = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._options: dict[str, Any] = options
        self._clock = clock
        self._here = LocalBus()
        self._me = new_id()
        self._untold: dict[str, None] = {}
        self._listening = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._teller: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._all_told: asyncio.Future[None] | None = None

    @property
    def reaches_all(self) -> bool:
        """Every process hears it."""
        return True

    def publish(self, topic: str, /) -> None:
        """Tell all who wait: here at once, elsewhere with the next bundle."""
        self._here.publish(topic)
        self._untold[topic] = None
        self._wanted.set()
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell(), name="stepwell-bus-teller")

    @asynccontextmanager
    async def subscribe(self, topic: str, /) -> AsyncGenerator[LocalSubscription]:
        """Hear of that topic for the length of a block."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="stepwell-bus-listener")
        async with self._here.subscribe(topic) as subscription:
            # If the server does not answer, the block begins all the same: whoever waits is told
            # once the connection stands.
            with suppress(TimeoutError):
                async with asyncio.timeout(_READY_SECONDS):
                    await self._listening.wait()
            yield subscription

    async def close(self) -> None:
        """Tell what is untold, then end both connections."""
        if self._untold:
            self._all_told = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_SECONDS):
                    await self._all_told
        for task in (self._teller, self._listener):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _tell(self) -> None:
        while True:
            with suppress(psycopg.Error, OSError):
                async with await self._connect() as connection:
                    await self._tell_on(connection)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _tell_on(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            topics = list(self._untold)
            for bundle in bundles(self._me, topics):
                await connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, bundle))
            # Told only now: what a lost connection swallowed is told again.
            for topic in topics:
                self._untold.pop(topic, None)
            if self._untold:
                self._wanted.set()
            elif self._all_told is not None and not self._all_told.done():
                self._all_told.set_result(None)
            await asyncio.sleep(_BUNDLE_SECONDS)

    async def _listen(self) -> None:
        while True:
            try:
                async with await self._connect() as connection:
                    await connection.execute(f"LISTEN {_CHANNEL}")
                    self._listening.set()
                    self._here.wake_all()
                    async for notification in connection.notifies():
                        self._hear(notification.payload)
            except (psycopg.Error, OSError):
                pass
            self._listening.clear()
            await asyncio.sleep(_AGAIN_SECONDS)

    def _hear(self, bundle: str) -> None:
        sender, *topics = bundle.split("\n")
        if sender != self._me:
            for topic in topics:
                self._here.publish(topic)

    async def _connect(self) -> "psycopg.AsyncConnection[Any]":
        return await psycopg.AsyncConnection.connect(self._address, **self._options)


def bundles(sender: str, topics: list[str]) -> list[str]:
    """As few notifications as will hold these topics.

    >>> bundles("me", ["a", "b"])
    ['me\\na\\nb']
    """
    made: list[str] = []
    for topic in topics:
        if made and len(made[-1].encode()) + len(topic.encode()) < _MOST_BYTES:
            made[-1] += f"\n{topic}"
        else:
            made.append(f"{sender}\n{topic}")
    return made
