"""Formats the result of an MCP tool for a model. Pure functions."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import json

from stepwell.text import truncate_with_note
from stepwell.tools import ToolFailure

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

NO_OUTPUT = "(The tool returned no output.)"


def format_result(
    result: "CallToolResult", *, limit: int, clean: Callable[[str], str] = str
) -> str | ToolFailure:
    """Join the text parts, and add structured content as JSON unless the text repeats it."""
    shown = [_format_block(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not repeats(shown, structured):
        shown.append(json.encode(structured).decode())
    text = truncate_with_note(clean("\n".join(shown)) or NO_OUTPUT, limit)
    return ToolFailure(text) if result.is_error else text


def repeats(texts: Sequence[str], structured: Any) -> bool:
    """Return whether the texts repeat the structured content; servers send both for old clients.

    >>> repeats(['{"a": 1}'], {"a": 1}), repeats(["1", "2"], {"result": [1, 2]})
    (True, True)
    >>> repeats(["two rows"], {"rows": [1, 2]})
    False
    """
    if not texts:
        return False
    same = [structured]
    if isinstance(structured, dict) and list(cast("dict[str, Any]", structured)) == ["result"]:
        same.append(structured["result"])
    joined = "\n".join(texts)
    if joined in same or _decode(joined) in same:
        return True
    return list(texts) in same or [_decode(text) for text in texts] in same


def _decode(text: str) -> Any:
    try:
        return json.decode(text)
    except (ValueError, RecursionError):
        return text


def _format_block(block: "ContentBlock") -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}, {_size(block.data)}: not shown]"
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return f"[link to {block.title or block.name}, {block.uri}{about}]"
        case "resource":
            resource = block.resource
            text = getattr(resource, "text", None)
            if text is not None:
                return f"[{resource.uri}]\n{text}"
            size = _size(getattr(resource, "blob", ""))
            return (
                f"[resource {resource.uri}, {resource.mime_type or 'no type'}, {size}: not shown]"
            )


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4} bytes"
