"""The server of the demo: runs in this process, with a temporary workspace and database."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from socket import socket

from stepwell.app.agent_app import AgentApp
from stepwell.app.config import Config
from stepwell.app.demo.agent import FIX, LIVELY, DemoAgent
from stepwell.app.demo.workspace import Workspace
from stepwell.app.scripted_words import Pace
from stepwell.cli.http_server import AppServer, address_of, bind_sockets
from stepwell.cli.process import start_application
from stepwell.clock import SystemClock
from stepwell.errors import ConfigurationError, SandboxError
from stepwell.sandbox.choice import confinement
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.principal import Principal
from stepwell.sessions.settings import SessionSettings

HOST, PORT = "127.0.0.1", 8400
USER = "dev"
"""The user id of everybody on this machine."""

Tell = Callable[[str], None]


class RunningDemo:
    """A demo that is being served."""

    def __init__(
        self, application: AgentApp, address: str, database: str, serving: "asyncio.Task[None]"
    ) -> None:
        self.application = application
        self.address = address
        self.database = database
        self.serving = serving
        self.ready_at = SystemClock().monotonic()
        self._sandbox = asyncio.create_task(_sandbox_fault())

    async def send_first_example(self) -> str:
        """Send the first example, so that visitors see it run, and return its session id."""
        who = Principal(user_id=USER, is_admin=True)
        sent = await self.application.services.intake.send_message(who, NewMessage(content=FIX))
        return sent.session.id

    async def sandbox_fault(self) -> str | None:
        """Return why the sandbox refuses commands on this machine, or None if it works."""
        return await self._sandbox

    async def close(self) -> None:
        """Stop probing the sandbox."""
        self._sandbox.cancel()
        await asyncio.gather(self._sandbox, return_exceptions=True)


@asynccontextmanager
async def running_demo(
    port: int | None, db: str | None, *, tell: Tell, pace: Pace = LIVELY
) -> AsyncGenerator[RunningDemo]:
    """Serve the demo for the length of a block, then remove its files."""
    sockets = await _sockets(port, tell)
    try:
        with _folder() as folder:
            number = sockets[0].getsockname()[1]
            database = db or f"sqlite:///{Path(folder) / 'stepwell.db'}"
            application = _application(Path(folder), database, number, pace)
            await start_application(application)
            async with application.running():
                server = AppServer(application, HOST, number)
                serving = asyncio.create_task(server.serve(sockets))
                try:
                    address = await _address(server, serving)
                    demo = RunningDemo(application, address, database, serving)
                    try:
                        yield demo
                    finally:
                        await demo.close()
                finally:
                    server.end()
                    await serving
    finally:
        for each in sockets:
            each.close()


def _folder() -> "tempfile.TemporaryDirectory[str]":
    try:
        return tempfile.TemporaryDirectory(prefix="stepwell-demo-", ignore_cleanup_errors=True)
    except OSError as error:
        raise ConfigurationError(
            f"can't create a temporary folder ({error}); set TMPDIR to a writable one"
        ) from None


def _application(folder: Path, database: str, port: int, pace: Pace) -> AgentApp:
    agent = DemoAgent(Workspace(folder), port=port, pace=pace)
    # Ignores stepwell.toml and the environment: the demo is the same everywhere.
    config = Config(
        db=database,
        sessions=SessionSettings(shutdown_seconds=2.0),
    )
    return AgentApp([agent], worker=True).use_config(config)


async def _sockets(port: int | None, tell: Tell) -> list[socket]:
    if port is not None:
        return await bind_sockets(HOST, port)
    try:
        return await bind_sockets(HOST, PORT)
    except ConfigurationError:
        tell(f"port {PORT} is in use; using a free one")
        return await bind_sockets(HOST, 0)


async def _address(server: AppServer, serving: "asyncio.Task[None]") -> str:
    """Return the address, or raise what kept the server from listening."""
    address = asyncio.create_task(address_of(server))
    await asyncio.wait({address, serving}, return_when=asyncio.FIRST_COMPLETED)
    if not address.done():
        address.cancel()
        await serving
        raise ConfigurationError("the server ended before it could listen")
    return address.result()


async def _sandbox_fault() -> str | None:
    try:
        await confinement()
    except SandboxError as error:
        return str(error)
    return None
