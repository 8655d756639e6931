"""One connection to an MCP server. The SDK's context managers are entered and left in one task of
its own, as they must be; calls may come from any task.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from stepwell.capabilities.mcp.definitions import ToolDefinition, definition_of
from stepwell.capabilities.mcp.ending import Ending
from stepwell.capabilities.mcp.errors import McpCallError, McpConnectionError, hidden, told
from stepwell.capabilities.mcp.launch import Launch

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

logger = logging.getLogger("stepwell.capabilities.mcp")


class OnProgress(Protocol):
    """Told how far a call is, as the server tells it."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """``progress`` of ``total``, and words for it."""
        ...


MOST_TOOLS = 1000
"""A server that lists more, page after page, is not read to its end."""

SECONDS_TO_LEARN_WHY = 3.0
LONGEST_COMPLAINT = 2000
_SESSION_OVER = "Session terminated"


class Connection:
    """Opened once, closed once. ``call`` says what went wrong in an ``McpError``."""

    def __init__(self, launch: Launch, name: str) -> None:
        self._launch = launch
        self._name = name
        self._ending = Ending()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self.tools: tuple[ToolDefinition, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._ready.done() and not self._ending.has_happened and not self._is_over

    async def open(self, seconds: float) -> None:
        """Connect and read the list of tools; raises ``McpConnectionError``."""
        self._task = asyncio.create_task(self._live(), name=f"mcp {self._name}")
        gave_up = False
        try:
            await asyncio.wait(
                {self._task, self._ready}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not self._ready.done():
                gave_up = not self._task.done()
                self._task.cancel()
                await asyncio.wait({self._task})
        if not self._ready.done():
            why = f"did not answer within {seconds:g} seconds" if gave_up else self._why()
            said = f"; its last words: {words}" if (words := self._ending.last_words) else ""
            raise McpConnectionError(
                f"MCP server {self._name!r} can't be connected to: it {why}{said}"
            )

    async def close(self) -> None:
        """End it, and whatever it started; calls that still wait fail."""
        self._ending.tell("was closed")
        if self._task is not None:
            await asyncio.wait({self._task})
            self._why()  # what a connection dies of while it is closed interests nobody

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None
    ) -> "CallToolResult":
        """What the server's tool gives; raises ``McpError``."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        try:
            client = self._ready.result()
            return await client.call_tool(tool, arguments, progress_callback=on_progress)
        except MCPError as error:
            if error.message == _SESSION_OVER:
                self._ending.tell("no longer knows this session")
            if error.code == CONNECTION_CLOSED or self._ending.has_happened:
                await self._learn_why()
            if self.is_open:
                words = hidden(error.message, self._launch.secrets)[:LONGEST_COMPLAINT]
                raise McpCallError(words or f"error {error.code}") from None
            raise self._ended() from None
        except (RuntimeError, ValueError) as error:  # the SDK's words for an unusable answer
            if self.is_open:
                why = told(error, self._launch.secrets)
                raise McpCallError(f"the answer of MCP server {self._name!r}: {why}") from None
            raise self._ended() from None

    async def _live(self) -> None:
        from mcp import Client

        transport = self._launch.streams(self._ending)
        async with Client(transport, cache=None) as client:
            self.tools = await _listed(client, self._name)
            self._ready.set_result(client)
            await self._ending.wait()

    async def _learn_why(self) -> None:
        """A dying connection says a moment later what it died of."""
        if self._task is not None and not self._ending.has_happened:
            ended = asyncio.create_task(self._ending.wait())
            await asyncio.wait(
                {self._task, ended},
                timeout=SECONDS_TO_LEARN_WHY,
                return_when=asyncio.FIRST_COMPLETED,
            )
            ended.cancel()
            with suppress(asyncio.CancelledError):
                await ended

    def _ended(self) -> McpConnectionError:
        why = self._why() or "is gone"
        logger.warning("MCP server %s %s; %s", self._name, why, self._ending.last_words)
        return McpConnectionError(
            f"MCP server {self._name!r} {why}. What the call had begun may still take effect; the "
            "next call connects anew."
        )

    def _why(self) -> str:
        """How it ended, as far as that is known."""
        error = None
        if self._is_over and self._task is not None and not self._task.cancelled():
            error = self._task.exception()
        if self._ending.words:
            return self._ending.words
        return "" if error is None else f"failed: {told(error, self._launch.secrets)}"

    @property
    def _is_over(self) -> bool:
        return self._task is not None and self._task.done()


async def _listed(client: "Client", name: str) -> tuple[ToolDefinition, ...]:
    """All tools of a server, page after page."""
    if client.server_capabilities.tools is None:
        return ()
    found: list[ToolDefinition] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found.extend(definition_of(tool) for tool in page.tools if tool.name)
        if not all(tool.name for tool in page.tools):
            logger.warning("MCP server %s lists a tool without a name; it is left out", name)
        if not page.next_cursor or page.next_cursor == cursor:
            return tuple(found)
        if len(found) >= MOST_TOOLS or not page.tools:
            logger.warning(
                "MCP server %s lists more than %d tools, or pages without any; the rest "
                "is not read",
                name,
                len(found),
            )
            return tuple(found)
        cursor = page.next_cursor
