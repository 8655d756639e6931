"""The way to an MCP server over streamable HTTP: the SDK's, with our headers and patience."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from stepwell.capabilities.mcp.launch import Address
from stepwell.capabilities.mcp.process import LONGEST_MESSAGE
from stepwell.models.http import no_cookies

SECONDS_TO_CONNECT = 30.0


@asynccontextmanager
async def web_streams(address: Address) -> AsyncGenerator[Any]:
    """Sends requests to a server while the block lasts."""
    from httpx2 import AsyncClient, Timeout
    from mcp.client.streamable_http import streamable_http_client

    # How long a call may take is the tool's timeout; a slow server is not a dead one.
    patience = Timeout(SECONDS_TO_CONNECT, read=None)
    client = AsyncClient(headers=dict(address.headers), timeout=patience, cookies=no_cookies())
    async with (
        client,
        streamable_http_client(
            address.url, http_client=client, max_sse_event_size=LONGEST_MESSAGE
        ) as streams,
    ):
        yield streams
