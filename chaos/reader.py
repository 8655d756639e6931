"""The process of the subscribers: each follows sessions over SSE, and breaks off at random.

A subscriber goes on from the id of the last event that it was given, as a browser does. It writes
down every journal entry that it saw, and of each execution that completed the text of its last step
as the chunks told it.
"""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from chaos.control import listen
from chaos.databases import open_existing
from chaos.settings import USER, ChaosSettings, Place
from stepwell.sessions.errors import SessionError
from stepwell.sessions.ports import SessionFilter, Store
from stepwell.sessions.principal import DEFAULT_TENANT

MOST_SESSIONS = 100_000
_LOST = (OSError, EOFError, asyncio.IncompleteReadError, TimeoutError)


class SseEvent(Struct, frozen=True):
    """One event as it came over the wire."""

    id: str
    type: str
    data: dict[str, Any]

    @property
    def seq(self) -> int | None:
        """The number of a journal entry; None for text that is being generated."""
        is_entry = not str(self.data.get("id", "~")).startswith("~")
        return self.data["seq"] if is_entry else None


async def sse_events(port: int, session_id: str, last_id: str) -> AsyncIterator[SseEvent]:
    """What the server tells of a session behind an event; ends when the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    try:
        head = [
            f"GET /agent/sessions/{session_id}/events?after=0 HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Accept: text/event-stream",
            f"X-Stepwell-User: {USER.user_id}",
            *([f"Last-Event-ID: {last_id}"] if last_id else []),
        ]
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
        status = await reader.readline()
        if b" 200 " not in status:
            if b" 503 " in status or not status:
                raise ConnectionError(f"the server answered {status!r}")
            rest = await reader.read(2000)
            raise AssertionError(f"the server answered {status!r} {rest!r}")
        await reader.readuntil(b"\r\n\r\n")
        fields: dict[str, str] = {}
        # Lengths of HTTP's own chunks stand between the lines; they are no field of an event.
        while line := await reader.readline():
            name, colon, value = line.decode().strip().partition(": ")
            if colon and name in ("id", "event", "data"):
                fields[name] = value
            elif not name and "data" in fields:
                data = json.loads(fields["data"])
                yield SseEvent(fields.get("id", last_id), fields.get("event", ""), data)
                fields = {}
    finally:
        writer.close()


class Subscriber:
    """Follows some sessions and writes down what it is told."""

    def __init__(self, number: int, settings: ChaosSettings, place: Place, file: IO[str]) -> None:
        self._dice = random.Random(settings.seed * 31 + number)
        self._port = place.port
        self._file = file
        self._last_ids: dict[str, str] = {}
        self._cursors: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        """By execution: what was streamed of its newest step."""

    def cursor(self, session_id: str) -> int:
        """The last number that it was told of that session."""
        return self._cursors.get(session_id, 0)

    async def follow(self, session_id: str) -> None:
        """Until cancelled: connect behind the last event, listen for a while, break off."""
        while True:
            try:
                async with asyncio.timeout(self._dice.uniform(1.0, 8.0)):
                    await self._listen(session_id, self._dice.randint(5, 100))
            except _LOST:
                await asyncio.sleep(0.2)
            self._write(session_id, {"reconnect": self.cursor(session_id)})

    async def _listen(self, session_id: str, most: int) -> None:
        events = sse_events(self._port, session_id, self._last_ids.get(session_id, ""))
        async for event in events:
            self._note(session_id, event)
            most -= 1
            if most <= 0:
                break
        await events.aclose()

    def _note(self, session_id: str, event: SseEvent) -> None:
        self._last_ids[session_id] = event.id
        if event.type == "reset":
            self._write(session_id, {"reset": event.data})
            return
        if event.seq is not None:
            self._cursors[session_id] = event.seq
            self._write(session_id, {"seq": event.seq, "id": event.data.get("id", "")})
        execution = str(event.data.get("execution_id"))
        payload = event.data.get("payload", {})
        match payload.get("event_type", event.type):
            # A step that is begun again has no message of its own.
            case "step.started" | "agent.step.started":
                self._texts[execution] = ""
            case "agent.stream.chunk":
                text = payload.get("content", "")
                self._texts[execution] = self._texts.get(execution, "") + text
            case "execution.completed":
                self._write(
                    session_id, {"execution": execution, "text": self._texts.pop(execution, "")}
                )
            case _:
                pass

    def _write(self, session_id: str, line: dict[str, Any]) -> None:
        self._file.write(json.dumps({"session": session_id, **line}) + "\n")


class Readers:
    """All subscribers; each session is followed by two of them."""

    def __init__(self, settings: ChaosSettings, place: Place, store: Store) -> None:
        self._store = store
        self._files = [
            (Path(place.folder) / f"subscriber-{number}.jsonl").open("w")
            for number in range(settings.subscribers)
        ]
        self._subscribers = [
            Subscriber(number, settings, place, file) for number, file in enumerate(self._files)
        ]
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self.finishing = asyncio.Event()

    async def run(self) -> None:
        """Follow whatever sessions there are, until told to finish and all was read."""
        while True:
            try:
                newest = await self._newest()
            except SessionError:
                await asyncio.sleep(0.5)
                continue
            for session_id in newest:
                if session_id not in self._tasks:
                    self._begin(session_id)
            if self.finishing.is_set() and self._has_all(newest):
                break
            await asyncio.sleep(0.5)
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
    store = await open_existing(place)
    readers = Readers(settings, place, store)
    listen(pipe, lambda _: readers.finishing.set())
    pipe.send({"ready": os.getpid(), "name": name})
    await readers.run()
    pipe.send({"done": True})
    await store.close()


def main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    """The process of the subscribers."""
    asyncio.run(_main(settings, place, name, pipe))
