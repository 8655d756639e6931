"""``McpServer``: an MCP server and its connection, open for the duration of a block."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stepwell.capabilities.mcp.connection import Connection, OnProgress
from stepwell.capabilities.mcp.definitions import ToolDefinition
from stepwell.capabilities.mcp.endpoints import Address, Command, Endpoint, require_mcp
from stepwell.capabilities.mcp.errors import McpConnectionError
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_seconds, check_text
from stepwell.secrets import hide

if TYPE_CHECKING:
    from mcp_types import CallToolResult

CONNECT_TIMEOUT = 30.0


class McpServer:
    """An MCP server, connected for the duration of its ``async with`` block.

    After the server ended, the next call reconnects. The list of tools is read when the block is
    entered; later changes of the list are ignored. Values of ``env`` and ``headers`` never appear
    in a repr; those of 8 or more characters are also removed from results, failures and logs.

    ::

        async with McpServer.stdio("uvx", ["mcp-server-time"]) as server:
            agent = Agent(model, capabilities=[UseMcp(server)])
            state = await agent.run("What time is it in Oslo?")

    >>> McpServer.http("https://example.com/mcp?key=abc", headers={"Authorization": "Bearer x"})
    McpServer('https://example.com/mcp', not connected)
    """

    def __init__(
        self, endpoint: Endpoint, *, name: str | None = None, connect_timeout: float
    ) -> None:
        require_mcp()
        self._endpoint = endpoint
        self._seconds = check_seconds(connect_timeout, "connect_timeout")
        self.name = endpoint.label if name is None else check_text(name, "name")
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._tools: tuple[ToolDefinition, ...] = ()

    @classmethod
    def stdio(
        cls,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        name: str | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> "McpServer":
        """Make a server that runs as a process until the block ends.

        Its environment has only ``env`` and basic variables (PATH, HOME and the like), never the
        rest of ours.
        """
        endpoint = Command.of(command, args, env, cwd)
        return cls(endpoint, name=name, connect_timeout=connect_timeout)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> "McpServer":
        """Make a server that is reached over streamable HTTP.

        Put secrets into headers, not into the URL: the HTTP library logs URLs.
        """
        return cls(Address.of(url, headers), name=name, connect_timeout=connect_timeout)

    @property
    def is_connected(self) -> bool:
        """Whether execution is inside the block, even if the server ended meanwhile."""
        return self._connection is not None

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The server's tools, as listed when the block was entered."""
        return self._tools

    def without_secrets(self, text: str) -> str:
        """Remove values of ``env`` and ``headers`` with 8 or more characters from the text."""
        return hide(text, self._endpoint.secrets)

    async def __aenter__(self) -> "McpServer":
        if self.is_connected:
            raise ConfigurationError(
                f"MCP server {self.name!r} is connected already; enter its block once, and pass "
                "the same object to several agents"
            )
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._connection = await self._open()
        self._tools = self._connection.tools
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}, {'' if self.is_connected else 'not '}connected)"

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None
    ) -> "CallToolResult":
        """Call a tool by the server's own name for it. Raises ``McpError``."""
        loop = self._loop
        if loop is None or not self.is_connected:
            raise self._not_connected()
        if loop is asyncio.get_running_loop():
            return await self._call(tool, arguments, on_progress)
        # An agent in another thread has its own loop; the connection belongs to this one.
        there = asyncio.run_coroutine_threadsafe(self._call(tool, arguments, on_progress), loop)
        return await asyncio.wrap_future(there)

    async def _call(
        self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> "CallToolResult":
        connection = self._connection
        if connection is not None and not connection.is_open:
            connection = await self._reconnect(connection)
        if connection is None:
            raise self._not_connected()
        return await connection.call(tool, arguments, on_progress)

    async def _reconnect(self, ended: Connection) -> Connection | None:
        """Replace a connection that ended; only one of several callers does it."""
        async with self._lock:
            if self._connection is not ended:
                return self._connection
            await ended.close()
            opened = await self._open()
            if self._connection is not ended:  # the block was exited meanwhile
                await opened.close()
                return None
            self._connection = opened
            return opened

    async def _open(self) -> Connection:
        connection = Connection(self._endpoint, self.name)
        await connection.open(self._seconds)
        return connection

    def _not_connected(self) -> McpConnectionError:
        return McpConnectionError(
            f"MCP server {self.name!r} is not connected; run the agent inside its block: async "
            "with McpServer.stdio(...) as server: ..."
        )
