"""What an MCP tool gave, as the text a model sees. Only pure functions."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import json

from stepwell.tools import ToolFailure

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

NOTHING = "(The tool gave no output.)"


def as_result(
    result: "CallToolResult", *, limit: int, clean: Callable[[str], str] = str
) -> str | ToolFailure:
    """Text parts joined, then structured content that the text does not repeat, as JSON."""
    shown = [_shown(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not repeats(shown, structured):
        shown.append(json.encode(structured).decode())
    text = shortened(clean("\n".join(shown)) or NOTHING, limit)
    return ToolFailure(text) if result.is_error else text


def shortened(text: str, limit: int) -> str:
    """The beginning of a text that is too long, and a note of how much is missing.

    >>> shortened("abcdef", 4)
    'abcd\\n(Cut off: 4 of 6 characters are shown.)'
    """
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n(Cut off: {limit} of {len(text)} characters are shown.)"


def repeats(texts: Sequence[str], structured: Any) -> bool:
    """Whether the texts say the same as the structured content; servers send both for old clients.

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
    whole = "\n".join(texts)
    if whole in same or _decoded(whole) in same:
        return True
    return list(texts) in same or [_decoded(text) for text in texts] in same


def _decoded(text: str) -> Any:
    try:
        return json.decode(text)
    except (ValueError, RecursionError):
        return text


def _shown(block: "ContentBlock") -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}, {_size(block.data)}: not shown]"
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return f"[link to {block.title or block.name}, {block.uri}{about}]"
        case "resource":
            held = block.resource
            text = getattr(held, "text", None)
            if text is not None:
                return f"[{held.uri}]\n{text}"
            size = _size(getattr(held, "blob", ""))
            return f"[resource {held.uri}, {held.mime_type or 'no type'}, {size}: not shown]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4} bytes"
