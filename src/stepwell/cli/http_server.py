"""The HTTP server of an application: binds sockets first, ends live streams on shutdown."""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn

from stepwell.app.agent_app import AgentApp
from stepwell.errors import ConfigurationError
from stepwell.server.live.client_connection import live_http_protocol

_LONGEST_SOCKET_MESSAGE = 64 * 1024
LAST_REQUESTS_SECONDS = 10
"""Seconds that a shutdown waits for open requests."""
_OTHER_FILES = 64
"""File descriptors reserved for the database and for tools."""

logger = logging.getLogger("stepwell.cli")


async def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Bind the sockets without listening: no connection is accepted before the app is ready."""
    loop = asyncio.get_running_loop()
    try:
        listening = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port {port} of {host} is in use; choose another with --port, or --port 0 for a "
                "free one"
            ) from None
        raise ConfigurationError(
            f"can't listen on port {port} of {host}: {error.strerror or error}; choose another "
            "with --host and --port"
        ) from None
    sockets = [each.dup() for each in listening.sockets]
    listening.close()
    return sockets


class AppServer(uvicorn.Server):
    """A uvicorn server that ends live streams before it shuts down."""

    def __init__(self, application: AgentApp, host: str, port: int) -> None:
        settings = application.config.server
        super().__init__(
            uvicorn.Config(
                application,
                host=host,
                port=port,
                http=live_http_protocol(settings, _most_connections(settings.max_connections)),
                ws="websockets-sansio",
                ws_per_message_deflate=False,
                ws_max_size=_LONGEST_SOCKET_MESSAGE,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=LAST_REQUESTS_SECONDS,
            )
        )
        self._application = application

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone: uvicorn would raise them again before the worker has ended."""
        yield

    def end(self) -> None:
        """Accept no more requests and finish the open ones."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the live streams, then the rest."""
        await self._application.services.feeds.close()
        await super().shutdown(sockets)


async def address_of(server: AppServer) -> str:
    """Wait until the server listens and return its URL: ``http://127.0.0.1:8400``."""
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.02)
    address = server.servers[0].sockets[0].getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{address[1]}"


def _most_connections(wanted: int) -> int:
    """Return the connection limit that leaves file descriptors for the database."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files - _OTHER_FILES >= wanted:
        return wanted
    most = max(1, files - _OTHER_FILES)
    logger.info("limiting connections to %d: the process may open %d files", most, files)
    return most
