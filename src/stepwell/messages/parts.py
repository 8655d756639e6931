"""What a message is made of: text, images, files, thinking, tool calls and tool results."""

from collections.abc import Mapping
from typing import Any

from stepwell.messages.kept import Kept


class TextPart(Kept, frozen=True, tag="text"):
    """Plain text.

    >>> TextPart("hello").text
    'hello'
    """

    text: str


class ImagePart(Kept, frozen=True, kw_only=True, tag="image"):
    """An image by address, or as base64 data with its media type."""

    url: str | None = None
    data: str | None = None
    media_type: str | None = None


class FilePart(Kept, frozen=True, kw_only=True, tag="file"):
    """A file by address, or as base64 data with its media type and name."""

    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    name: str | None = None


class ThinkingPart(Kept, frozen=True, tag="thinking"):
    """A model's reasoning.

    ``signature`` is what some providers want to see again, unchanged; ``origin`` names the wire
    format that gave it, and only that one is sent it back. Redacted thinking is only a signature.
    """

    text: str
    signature: str | None = None
    id: str | None = None
    origin: str | None = None
    redacted: bool = False


class ToolCall(Kept, frozen=True, kw_only=True, tag="tool_call"):
    """A model's request to call a tool.

    ``malformed`` holds the raw text when the arguments were not a JSON object; the call then
    becomes a result that tells the model so. ``signature`` is what Gemini wants to see again with
    the call.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = {}
    malformed: str | None = None
    signature: str | None = None


class ToolResult(Kept, frozen=True, kw_only=True, tag="tool_result"):
    """What a tool call gave, as the model sees it."""

    call_id: str
    tool_name: str
    content: str
    is_error: bool = False


Part = TextPart | ImagePart | FilePart | ThinkingPart | ToolCall | ToolResult
