"""Errors of connections to MCP servers.

McpError (StepwellError)
├── McpConnectionError    the server can't be reached, or the connection ended
└── McpCallError          the server refused the call or sent an invalid answer
"""

from collections.abc import Collection
from typing import cast

from stepwell.errors import StepwellError, describe
from stepwell.secrets import hide


class McpError(StepwellError):
    """Raised when a request to an MCP server fails."""


class McpConnectionError(McpError):
    """Raised when an MCP server can't be reached, or its connection ended."""


class McpCallError(McpError):
    """Raised when an MCP server refuses a request or sends an invalid answer."""


def first_cause(error: BaseException) -> BaseException:
    """Return the first exception inside a group; any other exception unchanged."""
    inner: BaseException = error
    while isinstance(inner, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", inner).exceptions[0]
    return inner


def describe_error(error: BaseException, secrets: Collection[str]) -> str:
    """Describe an exception in one line, without secrets."""
    return hide(" ".join(describe(first_cause(error)).split()), secrets)[:500]
