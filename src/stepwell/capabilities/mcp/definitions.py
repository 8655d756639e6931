"""What an MCP server says about its tools, and the names under which a model sees them."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stepwell.tools import ToolEffect

if TYPE_CHECKING:
    from mcp_types import Tool

LONGEST_NAME = 64
LONGEST_DESCRIPTION = 10_000
_ODD = re.compile(r"[^a-zA-Z0-9_-]")


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool of a server; ``hint`` is what the server says about doing it twice."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    hint: ToolEffect | None = None


def definition_of(tool: "Tool") -> ToolDefinition:
    """A tool as the server lists it."""
    return ToolDefinition(
        name=tool.name,
        description=(tool.description or tool.title or "")[:LONGEST_DESCRIPTION],
        parameters=tool.input_schema,
        hint=_hint(tool),
    )


def _hint(tool: "Tool") -> ToolEffect | None:
    said = tool.annotations
    if said is None:
        return None
    if said.read_only_hint:
        return ToolEffect.PURE
    return ToolEffect.IDEMPOTENT if said.idempotent_hint else None


def usable_name(name: str, prefix: str = "") -> str:
    """The name as all providers accept it: letters, digits, _ and -, at most 64.

    >>> usable_name("files/read.text", "fs_")
    'fs_files_read_text'
    >>> len(usable_name("a" * 100))
    64
    """
    plain = _ODD.sub("_", f"{prefix}{name}")
    if len(plain) <= LONGEST_NAME:
        return plain
    mark = sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: LONGEST_NAME - 9]}_{mark}"
