"""The app server with its live routes on a real socket, and readers of what it sends."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from msgspec import Struct

from stepwell.agent import Agent
from stepwell.server.live.client_connection import live_http_protocol
from stepwell.server.policy import Authorize
from stepwell.server.services import Services
from stepwell.server.settings import ServerSettings
from stepwell.sessions.intake.intake import NewSession
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Session
from stepwell.worker.worker import Worker
from tests.integration.server.serving import APP_SECRET, Served, agents, headers_of, serving

ADA = Principal(user_id="ada")


class Live(Struct, frozen=True, kw_only=True, eq=False):
    """A server that listens, and what it stands on."""

    served: Served
    server: uvicorn.Server
    url: str

    @property
    def services(self) -> Services:
        """What the routes work with."""
        return self.served.services

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rsplit(":", 1)[1])

    def client(self, user: str | None = "ada", **headers: str) -> httpx2.AsyncClient:
        """A client of a user, through a real socket."""
        sent = {**headers_of(user), **headers}
        return httpx2.AsyncClient(base_url=self.url, headers=sent, timeout=90)

    async def session(self, user: str = "ada") -> Session:
        """A new session."""
        return await self.services.intake.create_session(Principal(user_id=user), NewSession())

    async def log(self, session: Session, *texts: str, type: str = "agent.stream.chunk") -> None:
        """Add events to a session's log, in one transaction."""
        now = self.services.clock.now()
        events = [Occurrence(type=type, payload={"content": text}, at=now) for text in texts]

        async def work(tx: Transaction) -> None:
            locked = await tx.session(session.id, lock=True)
            assert locked is not None
            await tx.append(locked, events)

        await self.services.store.write(work, name="test")


@asynccontextmanager
async def living(
    folder: Path,
    *,
    works: bool = False,
    made_agents: Callable[[], Mapping[str, Agent]] = agents,
    authorize: Authorize | None = None,
    http: type[asyncio.Protocol] | None = None,
    **settings: Any,
) -> AsyncIterator[Live]:
    """The whole server on a free port, with a worker if it ``works``."""
    server = ServerSettings(app_secret=APP_SECRET, **settings)
    made = serving(folder, server=server, made_agents=made_agents, authorize=authorize)
    async with made as served, _listening(served, works, http) as live:
        yield live


def _limited(http: type[asyncio.Protocol], settings: ServerSettings) -> type[asyncio.Protocol]:
    limits = {"max_connections": settings.max_connections, "idle": {}}
    return type("Limited", (http,), limits)


@asynccontextmanager
async def _listening(
    served: Served, works: bool, http: type[asyncio.Protocol] | None
) -> AsyncIterator[Live]:
    settings = served.services.settings
    config = uvicorn.Config(
        served.app,
        http=live_http_protocol(settings) if http is None else _limited(http, settings),
        ws="websockets-sansio",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)
    worker = Worker(served.store, served.work)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serve = asyncio.create_task(server.serve(sockets=[listener]))
        working = asyncio.create_task(worker.run()) if works else None
        try:
            while not server.started:
                assert not serve.done(), "the server did not start"
                await asyncio.sleep(0.01)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            yield Live(served=served, server=server, url=url)
        finally:
            if working is not None:
                await worker.stop()
                await working
            server.should_exit = True
            async with asyncio.timeout(90):
                await serve


class Told(Struct, frozen=True, kw_only=True):
    """One server-sent event; a comment has no type, text that is being generated no number."""

    id: int | None = None
    type: str = ""
    data: Any = None


class Stream:
    """A stream of server-sent events, read like a browser reads it."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def __aiter__(self) -> AsyncIterator[Told]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                yield Told(type="comment")
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                if "data" in fields:
                    number = int(fields["id"]) if fields["id"].isdigit() else None
                    yield Told(id=number, type=fields["event"], data=json.loads(fields["data"]))
                fields = {}

    async def first(self, count: int) -> list[Told]:
        """The next ones, comments as well."""
        found: list[Told] = []
        async for told in self:
            found.append(told)
            if len(found) == count:
                break
        return found

    async def events(self, count: int) -> list[Told]:
        """The next ones; comments are left out."""
        found: list[Told] = []
        async with asyncio.timeout(90):
            async for told in self:
                if told.type != "comment":
                    found.append(told)
                if len(found) == count:
                    break
        return found

    async def rest(self) -> list[Told]:
        """All up to the end, which has to come soon."""
        async with asyncio.timeout(90):
            return [told async for told in self if told.type != "comment"]


@asynccontextmanager
async def streaming(
    live: Live, session: Session, user: str | None = "ada", query: str = "", **headers: str
) -> AsyncIterator[Stream]:
    """Follow a session."""
    path = f"/agent/sessions/{session.id}/events{query}"
    async with live.client(user, **headers) as client, client.stream("GET", path) as response:
        yield Stream(response)


def numbers(told: Sequence[Told]) -> list[int | None]:
    """Their ids."""
    return [one.id for one in told]


@asynccontextmanager
async def raw_stream(live: Live, session: Session) -> AsyncIterator[asyncio.StreamReader]:
    """A follower with a small buffer that reads only what it is asked to read."""
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    taken.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(taken, ("127.0.0.1", live.port))
    reader, writer = await asyncio.open_connection(sock=taken, limit=1024)
    head = f"GET /agent/sessions/{session.id}/events HTTP/1.1\r\nHost: localhost\r\n"
    writer.write(f"{head}X-User: ada\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until(holds: Callable[[], bool], seconds: float = 90.0) -> None:
    """Wait for something that tells nobody."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0.01)
