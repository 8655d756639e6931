"""Formats messages as JSON for attributes, only if content is recorded. Reads states and events
only, where secret arguments are hidden already.
"""

from collections.abc import Iterable
from typing import Any

from stepwell.messages import (
    FilePart,
    FinishReason,
    ImagePart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from stepwell.models import ModelRequest
from stepwell.tools.result_text import format_result


def input_messages(messages: Iterable[Message]) -> str:
    """Format the conversation in a request, including instructions among the messages."""
    return attribute_text([_message(message) for message in messages])


def system_instructions(request: ModelRequest) -> str | None:
    """Format the instructions outside the conversation; None if there are none."""
    messages = [*request.context.messages, *([request.instruction] if request.instruction else ())]
    parts = [_part(part) for message in messages for part in message.parts]
    return attribute_text(parts) if parts else None


def output_message(message: Message, reason: FinishReason | None) -> str:
    """Format a model's answer."""
    return attribute_text(
        [{**_message(message), "finish_reason": str(reason or FinishReason.OTHER)}]
    )


def _message(message: Message) -> dict[str, Any]:
    return {"role": str(message.role), "parts": [_part(part) for part in message.parts]}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "content": part.text}
        case ThinkingPart():
            return {"type": "reasoning", "content": part.text}
        case ToolCall():
            arguments = part.arguments if part.malformed is None else part.malformed
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": arguments}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call_id, "response": part.content}
        case ImagePart():
            return _media(part, "image")
        case FilePart():
            return _media(part, "file")


def _media(part: ImagePart | FilePart, modality: str) -> dict[str, Any]:
    """Format a media part by its URL; the data would fill the span."""
    kind = "uri" if part.url else "blob"
    attributes = {"type": kind, "modality": modality, "mime_type": part.media_type}
    return {**attributes, "uri": part.url} if part.url else attributes


def attribute_text(value: Any) -> str:
    """Format a value as a model would see it, without half characters, which exporters refuse."""
    return format_result(value)[1]
