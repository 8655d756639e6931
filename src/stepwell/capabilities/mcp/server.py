"""``McpServer``: an MCP server and the connection to it, which lasts as long as its block."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stepwell.capabilities.mcp.connection import Connection, OnProgress
from stepwell.capabilities.mcp.definitions import ToolDefinition
from stepwell.capabilities.mcp.errors import McpConnectionError, hidden
from stepwell.capabilities.mcp.launch import Address, Command, Launch, need_mcp, seconds
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_text

if TYPE_CHECKING:
    from mcp_types import CallToolResult

SECONDS_TO_CONNECT = 30.0


class McpServer:
    """An MCP server, connected to while its ``async with`` block lasts.

    A server that ended is connected to again by the next call. Its list of tools is read when the
    block is entered; what it says later about changes of that list is not heard. Values of ``env``
    and ``headers`` are in no repr; those of 8 or more characters are cut out of results, failures
    and logs as well.

    ::

        async with McpServer.stdio("uvx", ["mcp-server-time"]) as server:
            agent = Agent(model, capabilities=[UseMcp(server)])
            state = await agent.run("What time is it in Oslo?")

    >>> McpServer.http("https://example.com/mcp?key=abc", headers={"Authorization": "Bearer x"})
    McpServer('https://example.com/mcp', not connected)
    """

    def __init__(self, launch: Launch, *, name: str | None = None, connect_timeout: float) -> None:
        need_mcp()
        self._launch = launch
        self._seconds = seconds(connect_timeout, "connect_timeout")
        self.name = launch.label if name is None else check_text(name, "name")
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
        connect_timeout: float = SECONDS_TO_CONNECT,
    ) -> "McpServer":
        """A server that is started as a process, and ended with the block.

        It sees only ``env`` and what every program needs (PATH, HOME and the like), never the
        rest of our environment.
        """
        launch = Command.of(command, args, env, cwd)
        return cls(launch, name=name, connect_timeout=connect_timeout)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        connect_timeout: float = SECONDS_TO_CONNECT,
    ) -> "McpServer":
        """A server that is reached over streamable HTTP.

        Put secrets into headers, not into the address: the HTTP library logs where it sends to.
        """
        return cls(Address.of(url, headers), name=name, connect_timeout=connect_timeout)

    @property
    def is_connected(self) -> bool:
        """Whether the block was entered and not left; a server that ended still counts."""
        return self._connection is not None

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The server's tools, as it listed them when the block was entered."""
        return self._tools

    def without_secrets(self, text: str) -> str:
        """The text without the values of ``env`` and ``headers`` that have 8 or more characters."""
        return hidden(text, self._launch.secrets)

    async def __aenter__(self) -> "McpServer":
        if self.is_connected:
            raise ConfigurationError(
                f"MCP server {self.name!r} is connected to already; enter its block once, and give "
                "the same object to several agents"
            )
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._connection = await self._opened()
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
        """Call one of the server's tools by its own name; raises ``McpError``."""
        loop = self._loop
        if loop is None or not self.is_connected:
            raise self._closed()
        if loop is asyncio.get_running_loop():
            return await self._called(tool, arguments, on_progress)
        # An agent in another thread has a loop of its own; the connection belongs to ours.
        there = asyncio.run_coroutine_threadsafe(self._called(tool, arguments, on_progress), loop)
        return await asyncio.wrap_future(there)

    async def _called(
        self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> "CallToolResult":
        connection = self._connection
        if connection is not None and not connection.is_open:
            connection = await self._reconnected(connection)
        if connection is None:
            raise self._closed()
        return await connection.call(tool, arguments, on_progress)

    async def _reconnected(self, ended: Connection) -> Connection | None:
        """A new connection in place of one that ended; one of several callers makes it."""
        async with self._lock:
            if self._connection is not ended:
                return self._connection
            await ended.close()
            made = await self._opened()
            if self._connection is not ended:  # the block was left meanwhile
                await made.close()
                return None
            self._connection = made
            return made

    async def _opened(self) -> Connection:
        connection = Connection(self._launch, self.name)
        await connection.open(self._seconds)
        return connection

    def _closed(self) -> McpConnectionError:
        return McpConnectionError(
            f"MCP server {self.name!r} is not connected; run the agent inside its block: async "
            "with McpServer.stdio(...) as server: ..."
        )
