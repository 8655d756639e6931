"""MCP servers as tools: ``McpServer`` connects, ``UseMcp`` gives a server's tools to an agent.

The ``mcp`` package is an optional extra and loaded when a server is first connected to.
"""

from stepwell.capabilities.mcp.capability import UseMcp
from stepwell.capabilities.mcp.errors import McpCallError, McpConnectionError, McpError
from stepwell.capabilities.mcp.server import McpServer

__all__ = ["McpCallError", "McpConnectionError", "McpError", "McpServer", "UseMcp"]
