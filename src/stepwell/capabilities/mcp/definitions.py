"""Tool definitions of MCP servers, and the names under which a model sees them."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stepwell.tools import ToolEffect

if TYPE_CHECKING:
    from mcp_types import Tool

MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 10_000
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool of a server; ``hint`` is the effect that the server declares."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    hint: ToolEffect | None = None


def definition_of(tool: "Tool") -> ToolDefinition:
    """Convert a tool as the server lists it."""
    return ToolDefinition(
        name=tool.name,
        description=(tool.description or tool.title or "")[:MAX_DESCRIPTION_CHARS],
        parameters=tool.input_schema,
        hint=_hint(tool),
    )


def _hint(tool: "Tool") -> ToolEffect | None:
    annotations = tool.annotations
    if annotations is None:
        return None
    if annotations.read_only_hint:
        return ToolEffect.PURE
    return ToolEffect.IDEMPOTENT if annotations.idempotent_hint else None


def usable_name(name: str, prefix: str = "") -> str:
    """Return the name in a form that all providers accept: letters, digits, _ and -, at most 64.

    >>> usable_name("files/read.text", "fs_")
    'fs_files_read_text'
    >>> len(usable_name("a" * 100))
    64
    """
    cleaned = _INVALID.sub("_", f"{prefix}{name}")
    if len(cleaned) <= MAX_NAME_CHARS:
        return cleaned
    digest = sha256(name.encode()).hexdigest()[:8]
    return f"{cleaned[: MAX_NAME_CHARS - 9]}_{digest}"
