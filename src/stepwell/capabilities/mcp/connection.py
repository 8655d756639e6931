"""One connection to an MCP server. The SDK's context managers must be entered and exited in the
same task, so the connection has its own task; calls may come from any task.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from stepwell.capabilities.mcp.definitions import ToolDefinition, definition_of
from stepwell.capabilities.mcp.endpoints import ConnectionEnd, Endpoint
from stepwell.capabilities.mcp.errors import McpCallError, McpConnectionError, describe_error
from stepwell.secrets import hide

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

logger = logging.getLogger("stepwell.capabilities.mcp")


class OnProgress(Protocol):
    """Called with the progress that a server reports for a call."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Handle a report: ``progress`` of ``total``, and a text."""
        ...


MAX_LISTED_TOOLS = 1000
"""Reading stops at this number of tools."""

REASON_TIMEOUT = 3.0
MAX_ERROR_CHARS = 2000
_SESSION_TERMINATED = "Session terminated"


class Connection:
    """A connection that is opened once and closed once. Failures are ``McpError``."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self._endpoint = endpoint
        self._name = name
        self._end = ConnectionEnd()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self.tools: tuple[ToolDefinition, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the connection accepts calls."""
        return self._ready.done() and not self._end.has_happened and not self._is_done

    async def open(self, seconds: float) -> None:
        """Connect and read the list of tools. Raises ``McpConnectionError``."""
        self._task = asyncio.create_task(self._run(), name=f"mcp {self._name}")
        timed_out = False
        try:
            await asyncio.wait(
                {self._task, self._ready}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not self._ready.done():
                timed_out = not self._task.done()
                self._task.cancel()
                await asyncio.wait({self._task})
        if not self._ready.done():
            why = f"did not answer within {seconds:g} seconds" if timed_out else self._reason()
            stderr_note = (
                f"; its last output on stderr: {text}" if (text := self._end.stderr_tail) else ""
            )
            raise McpConnectionError(
                f"can't connect to MCP server {self._name!r}: it {why}{stderr_note}"
            )

    async def close(self) -> None:
        """Close the connection and end what it started; pending calls fail."""
        self._end.report("was closed")
        if self._task is not None:
            await asyncio.wait({self._task})
            self._reason()  # retrieves the exception, which does not matter now

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> "CallToolResult":
        """Call a tool of the server and return its result. Raises ``McpError``."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        try:
            client = self._ready.result()
            return await client.call_tool(tool, arguments, progress_callback=on_progress)
        except MCPError as error:
            if error.message == _SESSION_TERMINATED:
                self._end.report("no longer knows this session")
            if error.code == CONNECTION_CLOSED or self._end.has_happened:
                await self._wait_for_reason()
            if self.is_open:
                text = hide(error.message, self._endpoint.secrets)[:MAX_ERROR_CHARS]
                raise McpCallError(text or f"error {error.code}") from None
            raise self._end_error() from None
        except (RuntimeError, ValueError) as error:  # raised by the SDK for an invalid answer
            if self.is_open:
                why = describe_error(error, self._endpoint.secrets)
                raise McpCallError(
                    f"invalid answer from MCP server {self._name!r}: {why}"
                ) from None
            raise self._end_error() from None

    async def _run(self) -> None:
        from mcp import Client

        transport = self._endpoint.streams(self._end)
        async with Client(transport, cache=None) as client:
            self.tools = await _list_tools(client, self._name)
            self._ready.set_result(client)
            await self._end.wait()

    async def _wait_for_reason(self) -> None:
        """Wait a moment for the reason why the connection ended."""
        if self._task is not None and not self._end.has_happened:
            ended = asyncio.create_task(self._end.wait())
            await asyncio.wait(
                {self._task, ended},
                timeout=REASON_TIMEOUT,
                return_when=asyncio.FIRST_COMPLETED,
            )
            ended.cancel()
            with suppress(asyncio.CancelledError):
                await ended

    def _end_error(self) -> McpConnectionError:
        why = self._reason() or "closed the connection"
        logger.warning("MCP server %s %s; %s", self._name, why, self._end.stderr_tail)
        return McpConnectionError(
            f"MCP server {self._name!r} {why}. The call may still take effect; the next call "
            "reconnects."
        )

    def _reason(self) -> str:
        """Return why the connection ended, as far as known."""
        error = None
        if self._is_done and self._task is not None and not self._task.cancelled():
            error = self._task.exception()
        if self._end.reason:
            return self._end.reason
        return "" if error is None else f"failed: {describe_error(error, self._endpoint.secrets)}"

    @property
    def _is_done(self) -> bool:
        return self._task is not None and self._task.done()


async def _list_tools(client: "Client", name: str) -> tuple[ToolDefinition, ...]:
    """List the tools of a server, page by page."""
    if client.server_capabilities.tools is None:
        return ()
    tools: list[ToolDefinition] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools.extend(definition_of(tool) for tool in page.tools if tool.name)
        if not all(tool.name for tool in page.tools):
            logger.warning("MCP server %s lists a tool without a name; it is skipped", name)
        if not page.next_cursor or page.next_cursor == cursor:
            return tuple(tools)
        if len(tools) >= MAX_LISTED_TOOLS or not page.tools:
            logger.warning(
                "MCP server %s lists more than %d tools, or empty pages; the rest is ignored",
                name,
                len(tools),
            )
            return tuple(tools)
        cursor = page.next_cursor
