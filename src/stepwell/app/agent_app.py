"""``AgentApp``: agents, a database, workers and the HTTP API as one ASGI application."""

import asyncio
import contextlib
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from stepwell.agent import Agent, AgentContract
from stepwell.app.app_secret import with_app_secret
from stepwell.app.authenticators import authenticator_for
from stepwell.app.config import AuthMode, Config, load_config
from stepwell.app.lifespan import OpenLifespan
from stepwell.app.measured_store import MeasuredStore
from stepwell.app.supervised_task import SupervisedTask
from stepwell.app.telemetry import with_tracing
from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError
from stepwell.ids import new_id
from stepwell.server.auth import (
    Authenticate,
    Authenticator,
    DevAuthenticator,
    KeyRing,
    accepts_keys,
    as_authenticator,
    refuse_open_bind,
    several,
)
from stepwell.server.live.feeds import Feeds
from stepwell.server.live.tokens import StreamTokens
from stepwell.server.metrics import Metrics
from stepwell.server.services import Services
from stepwell.server.settings import ServerSettings
from stepwell.sessions.attempt.runner import Runner
from stepwell.sessions.directory import AgentDirectory, BuildAgent
from stepwell.sessions.errors import ConflictError
from stepwell.sessions.intake.contexts import ContextResolver
from stepwell.sessions.intake.intake import Intake, NewMessage, NewSession
from stepwell.sessions.ports import Jobs, Store
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.retention import Retention, RetentionPolicy
from stepwell.sessions.run_contexts import MakeDeps, RunContexts
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.reader import Reader
from stepwell.stores.database_url import open_store
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.work import Work
from stepwell.worker.worker import Worker

if TYPE_CHECKING:
    from stepwell.server.policy import Authorize

logger = logging.getLogger("stepwell.app")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Lifespan = Callable[["AgentApp"], contextlib.AbstractAsyncContextManager[Any]]
"""Opens what lives as long as the process, such as a connection pool, and closes it at the end."""
Agents = Mapping[str, Agent | AgentContract | BuildAgent] | Iterable[AgentContract] | Agent

RETENTION_SECONDS = 3600.0
"""Seconds between two runs of the retention policy."""


class Parts(Struct, frozen=True, eq=False, dict=True):
    """The parts of a running application."""

    store: Store
    services: Services
    tasks: tuple[SupervisedTask, ...]

    @cached_property
    def asgi(self) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """The HTTP API. Commands that serve nothing never load it: it takes half a second."""
        from stepwell.server.asgi import make_asgi

        return make_asgi(self.services)


class AgentApp:
    """An application of agents: an ASGI app that can be served, or mounted into another one.

    Agents have names. Settings that are not given here come from ``stepwell.toml`` and the
    environment (see ``stepwell.app.config``), so the same program runs on SQLite and PostgreSQL.

    ``authenticate`` makes a ``Principal`` of a request; without one everybody on this machine is
    let in, and nobody else. ``authorize`` may refuse more than the policy table does. ``contexts``
    checks what sessions and messages are related to.

    ``lifespan`` opens what lives as long as the process, in servers and workers alike: an async
    context manager of the app. ``deps`` makes what one execution needs: a function of its
    ``RunContext`` that returns a value, an awaitable, or a context manager, which is closed when
    the execution ends, pauses or is handed over. Without ``deps``, tools get what ``lifespan``
    yielded.

    A mounted app does not receive lifespan events: give the host ``lifespan=app.lifespan``, or
    the first request starts it.
    """

    def __init__(
        self,
        agents: Agents,
        *,
        db: str | None = None,
        bus_url: str | None = None,
        authenticate: Authenticator | Authenticate | None = None,
        authorize: "Authorize | None" = None,
        contexts: ContextResolver | None = None,
        lifespan: Lifespan | None = None,
        deps: MakeDeps | None = None,
        settings: SessionSettings | None = None,
        server: ServerSettings | None = None,
        retention: RetentionPolicy | None = None,
        worker: bool | None = None,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(agents, Agent):
            agents = {"agent": agents}
        self.agents = AgentDirectory(agents)
        self._given = {
            "db": db,
            "bus_url": bus_url,
            "sessions": settings,
            "server": server,
            "retention": retention,
            "worker": worker,
        }
        self._authenticate = authenticate
        self._authorize = authorize
        self._contexts = contexts
        self._lifespan = lifespan
        self._make_deps = deps
        self._resources: Any = None
        self._open_lifespan: OpenLifespan | None = None
        if lifespan is None and deps is None:
            self.agents.refuse_missing_deps()
        self._clock = clock or SystemClock()
        self._config: Config | None = None
        self._sessions: Collection[str] | None = None
        self._parts: Parts | None = None
        self._starting = asyncio.Lock()
        self._worker: Worker | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # Configuration

    def use_config(self, config: Config) -> "AgentApp":
        """Use this configuration for settings that were not given; before the start."""
        if self._parts is not None:
            raise ConfigurationError("the application runs already; configure it before it starts")
        self._config = config
        return self

    def work_only_on(self, sessions: Collection[str]) -> None:
        """Run executions of these sessions and of no others, on any database; before it starts.

        The collection may grow meanwhile. For a process that is nobody's worker: what waits in
        other sessions is not taken up, and nothing old is cleared away.
        """
        if self._parts is not None:
            raise ConfigurationError("the application runs already; say it before it starts")
        self._sessions = sessions

    @property
    def config(self) -> Config:
        """What was given, and the configuration for the rest."""
        base = self._config or load_config()
        given = {name: value for name, value in self._given.items() if value is not None}
        return replace(base, **given)

    @property
    def works(self) -> bool:
        """Whether executions run in this process; by default only on SQLite."""
        config = self.config
        return config.worker if config.worker is not None else config.db.startswith("sqlite")

    @property
    def accepts_keys(self) -> bool:
        """Whether users can sign in with API keys."""
        if self._authenticate is not None:
            return accepts_keys(as_authenticator(self._authenticate))
        return self.config.auth.mode is not AuthMode.DEV

    def refuse_open_bind(self, host: str) -> None:
        """Raise if the server would admit everybody who can reach that host."""
        if self._authenticate is not None:
            refuse_open_bind(host, as_authenticator(self._authenticate))
        elif self.config.auth.mode is AuthMode.DEV:
            refuse_open_bind(host, DevAuthenticator())

    # Running

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator["AgentApp"]:
        """Run the application for the length of a block, with its database and worker."""
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    @contextlib.asynccontextmanager
    async def lifespan(self, _host: object) -> AsyncGenerator[None]:
        """For the application that this one is mounted in: ``FastAPI(lifespan=app.lifespan)``."""
        async with self.running():
            yield

    async def start(self) -> None:
        """Open the database and start the worker; calling it again does nothing."""
        async with self._starting:
            if self._parts is None:
                if self._lifespan is not None:
                    self._open_lifespan = OpenLifespan(self._lifespan(self))
                    self._resources = await self._open_lifespan.open()
                self._parts = await self._build()
                self._tasks = [asyncio.create_task(each.run()) for each in self._parts.tasks]

    async def stop(self) -> None:
        """Hand running executions back at their next step, then close everything."""
        parts, self._parts = self._parts, None
        if parts is None:
            return
        await parts.services.feeds.close()
        if self._worker is not None:
            await self._worker.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self._worker = [], None
        await parts.store.close()
        if self._open_lifespan is not None:
            self._resources = None
            await self._open_lifespan.close()

    async def ask(
        self,
        who: Principal,
        text: str,
        *,
        session_id: str | None = None,
        agent: str | None = None,
    ) -> Execution:
        """Send a message as somebody, wait until it is answered, and return the execution: for
        tests and scripts, while the app runs.

        It ends, or pauses with a question (``execution.questions``). Use ``asyncio.timeout`` to
        wait for a limited time.
        """
        services = self.services
        new = NewSession(agent_type=agent)
        message = NewMessage(content=text, session_id=session_id, new_session=new)
        sent = await services.intake.send_message(who, message)
        if sent.execution is None:
            raise ConflictError(
                "the session is busy and the message steers its running execution; set when_busy "
                "to enqueue to wait for an answer of its own",
                code="busy",
            )
        return await services.reader.settled_execution(sent.execution)

    @property
    def services(self) -> Services:
        """The services behind the routes, for programs that send messages; while it runs."""
        if self._parts is None:
            raise ConfigurationError(
                "the application is not running; use `async with app.running()`"
            )
        return self._parts.services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
            return
        await self.start()
        if self._parts is None:
            raise ConfigurationError("the application was stopped")
        await self._parts.asgi(scope, receive, send)

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except ConfigurationError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    # Putting it together

    async def _build(self) -> Parts:
        config = self.config
        if config.telemetry.enabled:
            self.agents = with_tracing(self.agents, config.telemetry)
        metrics = Metrics()
        opened = await open_store(config.db, clock=self._clock, bus_url=config.bus_url)
        store = MeasuredStore(opened, metrics.writes, self._clock)
        jobs = PolledJobs()
        tasks = tuple(self._beside(config, store, jobs))
        services = replace(
            self._services(config, store, jobs),
            metrics=metrics,
            # Not under "worker": that is whether anybody takes up work, here or elsewhere.
            checks={f"{task.name} here": task.check for task in tasks},
        )
        return Parts(store, services, tasks)

    def _services(self, config: Config, store: Store, jobs: Jobs) -> Services:
        clock, agents, sessions = self._clock, self.agents, config.sessions
        settings = with_app_secret(config.server, config.db)
        keys = KeyRing(store, clock)
        if self._authenticate is None:
            authenticate = authenticator_for(config.auth, keys, clock)
        else:
            authenticate = as_authenticator(self._authenticate)
        # A browser's EventSource can't send headers: it is given a short-lived token instead.
        tokens = StreamTokens(settings.app_secret, clock, claims=settings.live_claims)
        return Services(
            store=store,
            agents=agents,
            intake=Intake(
                store, jobs, agents, settings=sessions, contexts=self._contexts, clock=clock
            ),
            lifecycle=Lifecycle(store, jobs, agents, settings=sessions, clock=clock),
            reader=Reader(store),
            authenticate=several(authenticate, tokens),
            authorize=self._authorize,
            keys=keys,
            feeds=Feeds(store, clock, settings),
            stream_tokens=tokens,
            settings=settings,
            clock=clock,
            page=_page_folder(),
        )

    def _beside(self, config: Config, store: Store, jobs: Jobs) -> Iterator[SupervisedTask]:
        """Yield the tasks that run beside the server."""

        async def work() -> None:
            # A new one each time: a worker can't be started twice.
            self._worker = self.new_worker(config, store, jobs)
            await self._worker.run()

        if self.works:
            yield SupervisedTask("worker", work, self._clock)
        if config.retention != RetentionPolicy() and self._sessions is None:
            retention = Retention(store, config.retention, clock=self._clock)
            yield SupervisedTask("retention", lambda: self._run_retention(retention), self._clock)

    def new_worker(self, config: Config, store: Store, jobs: Jobs) -> Worker:
        """Make the worker of this process; again after one that broke."""
        settings, clock = config.sessions, self._clock
        contexts = RunContexts(
            resolver=self._contexts, make_deps=self._make_deps, resources=self._resources
        )
        runner = Runner(store, jobs, self.agents, settings=settings, contexts=contexts, clock=clock)
        name = f"worker-{new_id()}"
        work = Work(
            store,
            runner,
            settings=settings,
            worker_id=name,
            clock=clock,
            jobs=jobs,
            sessions=self._sessions,
        )
        return Worker(store, work, settings)

    async def _run_retention(self, retention: Retention) -> None:
        while True:
            report = await retention.run()
            level = logging.WARNING if report.skipped_sessions else logging.INFO
            logger.log(level, "retention: %s", report)
            await self._clock.sleep(RETENTION_SECONDS)


def _page_folder() -> Path | None:
    """Return the folder of the page; None if the package is not a folder, as in a zip."""
    folder = files("stepwell.ui")
    return folder if isinstance(folder, Path) else None
