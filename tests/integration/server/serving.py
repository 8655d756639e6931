"""The app server for tests: a real SQLite file, real services, agents whose model is scripted.

Executions run when a test says so (``work_off``), or by an embedded worker beside a real server.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI
from msgspec import Struct
from starlette.requests import HTTPConnection

from stepwell.agent import Agent
from stepwell.capabilities.user_input import UseUserInput
from stepwell.clock import Clock, SystemClock
from stepwell.models import ModelRequest
from stepwell.server.asgi import make_asgi
from stepwell.server.auth import ApiKeys, KeyRing, several
from stepwell.server.live.feeds import Feeds
from stepwell.server.live.tokens import StreamTokens
from stepwell.server.policy import Authorize
from stepwell.server.services import Services
from stepwell.server.settings import ServerSettings
from stepwell.sessions.attempt.runner import Runner
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.intake.contexts import AllowedContexts
from stepwell.sessions.intake.intake import Intake
from stepwell.sessions.ports import Store
from stepwell.sessions.principal import DEFAULT_TENANT, Principal
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.reader import Reader
from stepwell.stores.database_url import open_store
from stepwell.testing import ScriptedModel, call
from stepwell.testing.scripted_model import Scripted
from stepwell.tools import tool
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.work import Work
from stepwell.worker.worker import Worker

DATABASE = "test.db"
PAGE = Path(str(files("stepwell.ui")))
APP_SECRET = "secret-of-the-tests-which-is-long-enough"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One number.
        b: The other.
    """
    return a + b


def turn_for(request: ModelRequest) -> Scripted:
    """What the scripted model says: to ``add`` and ``ask`` with a tool call, else an echo."""
    last = request.messages[-1]
    if last.is_tool():
        return f"Done: {last.text}"
    match last.text:
        case "add":
            return call("add", id="call_add", a=1, b=2)
        case "ask":
            return call("user_input", id="call_ask", question="Which city?")
        case text:
            return f"You said: {text}"


def agents() -> dict[str, Agent]:
    """``helper`` adds and asks; ``thrifty`` pauses after one step."""
    return {
        "helper": Agent(
            ScriptedModel(turn_for), tools=[add], capabilities=[UseUserInput()], max_steps=10
        ),
        "thrifty": Agent(ScriptedModel(turn_for), tools=[add], max_steps=1, at_limit="pause"),
    }


class UserHeaders:
    """Believes the headers ``X-User``, ``X-Tenant`` and ``X-Admin``: for tests only."""

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Who the headers say."""
        user = request.headers.get("x-user")
        if user is None:
            return None
        return Principal(
            user_id=user,
            tenant_id=request.headers.get("x-tenant", DEFAULT_TENANT),
            is_admin="x-admin" in request.headers,
        )


def headers_of(
    user: str | None, *, tenant: str | None = None, admin: bool = False
) -> dict[str, str]:
    """What ``UserHeaders`` believes."""
    headers = {} if user is None else {"X-User": user}
    if tenant is not None:
        headers["X-Tenant"] = tenant
    if admin:
        headers["X-Admin"] = "1"
    return headers


class Served(Struct, frozen=True, kw_only=True, eq=False):
    """An app and what it stands on."""

    services: Services
    app: FastAPI
    work: Work

    @property
    def store(self) -> Store:
        """Its database."""
        return self.services.store

    def client(
        self,
        user: str | None = "ada",
        *,
        tenant: str | None = None,
        admin: bool = False,
        headers: Mapping[str, str] | None = None,
        app: Any = None,
    ) -> httpx2.AsyncClient:
        """A client of a user, without a network in between."""
        transport = httpx2.ASGITransport(app=app or self.app, raise_app_exceptions=False)
        return httpx2.AsyncClient(
            transport=transport,
            base_url="http://localhost",
            headers={**headers_of(user, tenant=tenant, admin=admin), **(headers or {})},
        )

    async def work_off(self) -> None:
        """Run all executions that can be claimed, those that they lead to as well."""
        clock = self.services.clock
        while waiting := await self.store.read(lambda tx: tx.claimable(clock.now(), limit=10)):
            for execution_id in waiting:
                await self.work.take(execution_id)


class Address(Struct, frozen=True, kw_only=True, eq=False):
    """A server that listens on loopback, with a worker beside it."""

    served: Served
    url: str

    def client(self, user: str | None = "ada", **who: Any) -> httpx2.AsyncClient:
        """A client of a user, through a real socket."""
        return httpx2.AsyncClient(base_url=self.url, headers=headers_of(user, **who))


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    server: ServerSettings | None = None,
    sessions: SessionSettings | None = None,
    authorize: Authorize | None = None,
    clock: Clock | None = None,
    made_agents: Callable[[], Mapping[str, Agent]] = agents,
    page: Path | None = PAGE,
) -> AsyncIterator[Served]:
    """Services and app over a database in that folder; one that is there is taken as it is."""
    clock = clock or SystemClock()
    sessions = sessions or SessionSettings()
    server = server or ServerSettings(app_secret=APP_SECRET)
    file = folder / DATABASE
    store = await open_store(f"sqlite:///{file}", clock=clock, migrate=not file.exists())
    directory = AgentDirectory(made_agents())
    jobs = PolledJobs()
    keys = KeyRing(store, clock)
    tokens = StreamTokens(server.app_secret or APP_SECRET, clock, claims=server.live_claims)
    contexts = AllowedContexts(
        {"invoice": lambda _who, id: f"/invoices/{id}" if id != "9" else False}
    )
    services = Services(
        store=store,
        agents=directory,
        intake=Intake(store, jobs, directory, settings=sessions, contexts=contexts, clock=clock),
        lifecycle=Lifecycle(store, jobs, directory, settings=sessions, clock=clock),
        reader=Reader(store),
        authenticate=several(UserHeaders(), ApiKeys(keys), tokens),
        authorize=authorize,
        keys=keys,
        feeds=Feeds(store, clock, server),
        stream_tokens=tokens,
        settings=server,
        clock=clock,
        page=page,
    )
    runner = Runner(store, jobs, directory, settings=sessions, clock=clock)
    work = Work(store, runner, settings=sessions, worker_id="test-worker", clock=clock)
    try:
        yield Served(services=services, app=make_asgi(services), work=work)
    finally:
        await services.feeds.close()
        await store.close()


@asynccontextmanager
async def listening(
    served: Served, *, app: Any = None, works: bool = True
) -> AsyncIterator[Address]:
    """The app on a free port of loopback, served by uvicorn, with an embedded worker if wanted."""
    config = uvicorn.Config(
        app or served.app, ws="websockets-sansio", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    worker = Worker(served.store, served.work)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        tasks = [asyncio.create_task(server.serve(sockets=[listener]))]
        try:
            while not server.started:
                assert not tasks[0].done(), "the server did not start"
                await asyncio.sleep(0.01)
            if works:
                tasks.append(asyncio.create_task(worker.run()))
            yield Address(served=served, url=f"http://127.0.0.1:{port}")
        finally:
            await worker.stop()
            await served.services.feeds.close()
            server.should_exit = True
            await asyncio.gather(*tasks)
