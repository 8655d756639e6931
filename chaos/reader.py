"""The process of the subscribers: each follows sessions from a cursor, and breaks off at random.

Every subscriber keeps its own log of what it was told, in a file of its own. Sessions are read
through the same feeds that the live channels of the server use.
"""

import asyncio
import json
import os
import random
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from chaos.control import listen
from chaos.databases import opened
from chaos.settings import ChaosSettings, Place
from stepwell.clock import SystemClock
from stepwell.server.live.feed import Feeds, Reset
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import SessionError
from stepwell.sessions.ports import SessionFilter, Store
from stepwell.sessions.principal import DEFAULT_TENANT

MOST_SESSIONS = 100_000


class Subscriber:
    """Follows some sessions and logs what it is told."""

    def __init__(self, number: int, settings: ChaosSettings, feeds: Feeds, file: IO[str]) -> None:
        self._dice = random.Random(settings.seed * 31 + number)
        self._feeds = feeds
        self._file = file
        self._cursors: dict[str, int] = {}

    def cursor(self, session_id: str) -> int:
        """The last number that it was told of that session."""
        return self._cursors.get(session_id, 0)

    async def follow(self, session_id: str) -> None:
        """Until cancelled: connect with the last number, listen for a while, break off."""
        while True:
            try:
                async with asyncio.timeout(self._dice.uniform(0.2, 3.0)):
                    await self._listen(session_id, self._dice.randint(1, 30))
            except TimeoutError:
                pass
            except SessionError:
                await asyncio.sleep(0.2)  # the database is being restarted
            self._write(session_id, {"reconnect": self.cursor(session_id)})

    async def _listen(self, session_id: str, most: int) -> None:
        async with await self._feeds.subscribe(session_id, self.cursor(session_id)) as events:
            while most > 0 and (batch := await events.take()) is not None:
                for told in batch[:most]:
                    if isinstance(told, Reset):
                        raise AssertionError(f"{session_id}: reset, and nothing was pruned")
                    self._cursors[session_id] = told.event.seq
                    self._write(session_id, {"seq": told.event.seq, "id": told.event.id})
                most -= len(batch)

    def _write(self, session_id: str, line: dict[str, Any]) -> None:
        self._file.write(json.dumps({"session": session_id, **line}) + "\n")


class Readers:
    """All subscribers; each session is followed by two of them."""

    def __init__(self, settings: ChaosSettings, place: Place, store: Store) -> None:
        self._store = store
        self._feeds = Feeds(store, SystemClock(), ServerSettings())
        self._files = [
            (Path(place.folder) / f"subscriber-{number}.jsonl").open("w")
            for number in range(settings.subscribers)
        ]
        self._subscribers = [
            Subscriber(number, settings, self._feeds, file)
            for number, file in enumerate(self._files)
        ]
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self.finishing = asyncio.Event()

    async def run(self) -> None:
        """Follow whatever sessions there are, until told to finish and all was read."""
        while True:
            try:
                newest = await self._newest()
            except SessionError:
                await asyncio.sleep(0.2)
                continue
            for session_id in newest:
                if session_id not in self._tasks:
                    self._begin(session_id)
            if self.finishing.is_set() and self._has_all(newest):
                break
            await asyncio.sleep(0.2)
        tasks = [task for some in self._tasks.values() for task in some]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for file in self._files:
            file.close()

    def _of(self, session_id: str) -> list[Subscriber]:
        first = list(self._tasks).index(session_id)
        every = self._subscribers
        return [every[first % len(every)], every[(first + 1) % len(every)]]

    def _begin(self, session_id: str) -> None:
        self._tasks[session_id] = []
        self._tasks[session_id] = [
            asyncio.create_task(subscriber.follow(session_id))
            for subscriber in self._of(session_id)
        ]

    async def _newest(self) -> dict[str, int]:
        which = SessionFilter(tenant_id=DEFAULT_TENANT)
        found = await self._store.read(lambda tx: tx.sessions(which, limit=MOST_SESSIONS))
        return {session.id: session.last_seq for session in found}

    def _has_all(self, newest: dict[str, int]) -> bool:
        for tasks in self._tasks.values():
            for task in tasks:
                if task.done():
                    task.result()
        return all(
            subscriber.cursor(session_id) >= last
            for session_id, last in newest.items()
            for subscriber in self._of(session_id)
        )


async def _main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    store = await opened(place.url)
    readers = Readers(settings, place, store)
    listen(pipe, lambda _: readers.finishing.set())
    pipe.send({"ready": os.getpid(), "name": name})
    await readers.run()
    pipe.send({"done": True})
    await store.close()


def main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    """The process of the subscribers."""
    asyncio.run(_main(settings, place, name, pipe))
