"""MCP servers as tools: ``McpServer`` connects, ``UseMcp`` adds a server's tools to an agent.

The ``mcp`` package is an optional extra, loaded on the first connection.
"""

from stepwell.capabilities.mcp.capability import UseMcp
from stepwell.capabilities.mcp.errors import McpCallError, McpConnectionError, McpError
from stepwell.capabilities.mcp.server import McpServer

__all__ = ["McpCallError", "McpConnectionError", "McpError", "McpServer", "UseMcp"]
