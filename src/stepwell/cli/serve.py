"""``stepwell serve``: an application over HTTP, with its worker where it runs on SQLite."""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import uvicorn
from msgspec.structs import replace

from stepwell.app.agent_app import AgentApp
from stepwell.app.config import shown_database
from stepwell.app.loading import load_app
from stepwell.cli.options import configuration, configuration_options, start_logging
from stepwell.cli.starting import on_end_signal, started
from stepwell.errors import ConfigurationError
from stepwell.server.auth import is_loopback_bind
from stepwell.server.live.line import live_http_protocol

_LONGEST_SOCKET_MESSAGE = 64 * 1024
_OTHER_FILES = 64
"""So many the database and tools may have open."""

logger = logging.getLogger("stepwell.cli")


@click.command("serve")
@configuration_options
@click.option("--host", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one.  [default: 8400]")
@click.option(
    "--worker/--no-worker",
    default=None,
    help="Run executions in this process as well.  [default: on SQLite]",
)
def command(app: str | None, config: Path | None, **options: Any) -> None:
    """Serve agents.

    APP names an AgentApp, an agent, or agents by name, as module:name. Without it a small built-in
    agent is served, whose words are scripted unless --model names a model.
    """
    configured = configuration(config, app=app, **options)
    start_logging(configured.log_level)
    if not is_loopback_bind(configured.host):
        names = (*configured.server.allowed_hosts, configured.host)
        configured = replace(configured, server=replace(configured.server, allowed_hosts=names))
    application = load_app(configured)
    application.refuse_open_bind(configured.host)
    asyncio.run(_served(application, configured.host, configured.port))


async def _served(application: AgentApp, host: str, port: int) -> None:
    # Before the server, so that a fault in the configuration is told as such.
    sockets = await _bound(host, port)
    try:
        await started(application)
        async with application.running():
            server = _Server(application, host, port)
            on_end_signal(server.end)
            announcing = asyncio.create_task(_announced(server, application))
            try:
                await server.serve(sockets)
            finally:
                announcing.cancel()
    finally:
        for each in sockets:
            each.close()


async def _bound(host: str, port: int) -> list[socket.socket]:
    """The sockets to listen on, which do not listen yet: nobody is let in before all is ready."""
    loop = asyncio.get_running_loop()
    try:
        bound = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port {port} of {host} is in use; give another one with --port, or --port 0 for "
                "one that is free"
            ) from None
        raise ConfigurationError(
            f"can't listen on port {port} of {host}: {error.strerror or error}; give others with "
            "--host and --port"
        ) from None
    sockets = [each.dup() for each in bound.sockets]
    bound.close()
    return sockets


class _Server(uvicorn.Server):
    """Ends live streams first when it shuts down: it would wait for them."""

    def __init__(self, application: AgentApp, host: str, port: int) -> None:
        settings = application.config.server
        super().__init__(
            uvicorn.Config(
                application,
                host=host,
                port=port,
                http=live_http_protocol(settings),
                ws="websockets-sansio",
                ws_per_message_deflate=False,
                ws_max_size=_LONGEST_SOCKET_MESSAGE,
                limit_concurrency=_most_connections(settings.max_connections),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=10,
            )
        )
        self._application = application

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone: uvicorn would raise them again, before the worker has ended."""
        yield

    def end(self) -> None:
        """Take no more requests and finish those under way."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then the rest."""
        await self._application.services.feeds.close()
        await super().shutdown(sockets)


def _most_connections(wanted: int) -> int:
    """Not so many that no file is left for the database."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files - _OTHER_FILES >= wanted:
        return wanted
    most = max(1, files - _OTHER_FILES)
    logger.info("%d connections at most: the process may open %d files", most, files)
    return most


async def _announced(server: _Server, application: AgentApp) -> None:
    """Tell where it listens, once it does."""
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.02)
    address = server.servers[0].sockets[0].getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    names = ", ".join(application.agents.names)
    click.echo(f"Stepwell serves {names} on http://{host}:{address[1]}")
    click.echo(f"Database: {shown_database(application.config.db)}")
    if not application.works:
        click.echo("Executions are run by `stepwell worker`, on the same database: none runs here.")
