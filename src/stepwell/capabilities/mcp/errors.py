"""What goes wrong between us and an MCP server.

McpError (StepwellError)
├── McpConnectionError    the server can't be reached, or ended
└── McpCallError          the server answers, but refuses the call or answers nonsense
"""

from collections.abc import Collection
from typing import cast

from stepwell.errors import StepwellError, described

HIDDEN = "[hidden]"
SHORTEST_SECRET = 8
"""Characters. A shorter value, such as ``fast`` or ``true``, is hardly a secret, and cutting it out
of everything would spoil results."""


class McpError(StepwellError):
    """A request to an MCP server failed."""


class McpConnectionError(McpError):
    """An MCP server can't be reached, or its connection ended."""


class McpCallError(McpError):
    """An MCP server refused a request, or its answer can't be used."""


def first_cause(error: BaseException) -> BaseException:
    """The first real exception inside a group; anything else as it is."""
    inner: BaseException = error
    while isinstance(inner, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", inner).exceptions[0]
    return inner


def told(error: BaseException, secrets: Collection[str]) -> str:
    """What an exception says, in one line and without secrets."""
    return hidden(" ".join(described(first_cause(error)).split()), secrets)[:500]


def hidden(text: str, secrets: Collection[str]) -> str:
    """The text without any of these values; those of fewer than 8 characters stay."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    return text
