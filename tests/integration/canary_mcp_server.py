"""An MCP server that tells all it knows: its environment and the headers of a request.

`python -m tests.integration.canary_mcp_server`, over its standard streams.
"""

import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError

server = MCPServer("talkative")


def environment() -> str:
    return Path("/proc/self/environ").read_bytes().decode().replace("\0", "\n")


@server.tool()
def show_environment() -> str:
    """All variables."""
    return environment()


@server.tool()
def show_environment_as_data() -> dict[str, str]:
    """All variables, as structured content."""
    return dict(line.split("=", 1) for line in environment().splitlines() if "=" in line)


@server.tool()
def fail_with_environment() -> str:
    """Fail, and say too much."""
    raise ValueError(environment())


@server.tool()
def refuse_with_environment() -> str:
    """Answer with an error of the protocol that says too much, far behind."""
    raise MCPError(code=-32603, message="x" * 1985 + environment().partition("GIVEN=")[2])


@server.tool()
async def progress_with_environment(ctx: Context) -> str:
    """Say too much while it works."""
    await ctx.report_progress(1, 2, environment())
    return "worked"


@server.tool()
def leave_with_environment() -> str:
    """Say too much and end."""
    sys.stderr.write(environment())
    sys.stderr.flush()
    os._exit(3)


if __name__ == "__main__":
    server.run("stdio")
