"""Messages as the conventions write them into attributes: JSON text, only where content was asked
for. Secret arguments are hidden in states and events already; nothing else is read here.
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
from stepwell.tools.formatting import shown


def input_messages(messages: Iterable[Message]) -> str:
    """The conversation that a model is given; instructions among it stay where they are."""
    return told_text([_message(message) for message in messages])


def system_instructions(request: ModelRequest) -> str | None:
    """What a model is told beside the conversation, if anything."""
    told = [*request.context.messages, *([request.instruction] if request.instruction else ())]
    parts = [_part(part) for message in told for part in message.parts]
    return told_text(parts) if parts else None


def output_message(message: Message, reason: FinishReason | None) -> str:
    """What a model answered."""
    return told_text([{**_message(message), "finish_reason": str(reason or FinishReason.OTHER)}])


def _message(message: Message) -> dict[str, Any]:
    return {"role": str(message.role), "parts": [_part(part) for part in message.parts]}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "content": part.text}
        case ThinkingPart():
            return {"type": "reasoning", "content": part.text}
        case ToolCall():
            said = part.arguments if part.malformed is None else part.malformed
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": said}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call_id, "response": part.content}
        case ImagePart():
            return _media(part, "image")
        case FilePart():
            return _media(part, "file")


def _media(part: ImagePart | FilePart, modality: str) -> dict[str, Any]:
    """By address only: the data would fill the span."""
    kind = "uri" if part.url else "blob"
    told = {"type": kind, "modality": modality, "mime_type": part.media_type}
    return {**told, "uri": part.url} if part.url else told


def told_text(value: Any) -> str:
    """As a model would see it, and so whole characters only: no exporter can send halves."""
    return shown(value)[1]
