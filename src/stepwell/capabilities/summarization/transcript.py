"""Renders part of a conversation as text of limited size for a model to summarize."""

from collections.abc import Iterator, Sequence

from msgspec import json

from stepwell.messages import FilePart, ImagePart, Message, Role, TextPart, ThinkingPart, ToolCall
from stepwell.messages.parts import Part
from stepwell.text import truncate_middle

_SPEAKERS = {
    Role.SYSTEM: "Instruction",
    Role.DEVELOPER: "Instruction",
    Role.USER: "User",
    Role.ASSISTANT: "Assistant",
    Role.TOOL: "Tool",
}
_LIMITS = ((8000, 2000), (2000, 500), (500, 120))
"""Limits of a text, and of arguments or a tool result; tried in turn until everything fits."""


def transcript(messages: Sequence[Message], *, limit: int) -> str:
    """Render messages in at most ``limit`` characters; long texts lose their middle.

    >>> print(transcript([Message.user("Hi"), Message.assistant("Hello")], limit=100))
    User: Hi
    Assistant: Hello
    """
    text = ""
    for text_limit, data_limit in _LIMITS:
        text = "\n".join(line for m in messages for line in _lines(m, text_limit, data_limit))
        if len(text) <= limit:
            return text
    return truncate_middle(text, limit)


def _lines(message: Message, text_limit: int, data_limit: int) -> Iterator[str]:
    speaker = _SPEAKERS[message.role]
    for part in message.parts:
        line = _line(part, speaker, text_limit, data_limit)
        if line:
            yield line


def _line(part: Part, speaker: str, text_limit: int, data_limit: int) -> str:
    match part:
        case TextPart():
            return f"{speaker}: {truncate_middle(part.text, text_limit)}"
        case ToolCall():
            arguments = part.malformed or json.encode(part.arguments, enc_hook=str).decode()
            return f"{speaker} called {part.name}: {truncate_middle(arguments, data_limit)}"
        case ThinkingPart():
            return ""
        case ImagePart():
            return f"{speaker} gave an image ({part.media_type or part.url or 'no type':.80})"
        case FilePart():
            known = part.name or part.media_type or part.url or "no name"
            return f"{speaker} gave a file ({known:.80})"
        case _:
            outcome = "failed" if part.is_error else "gave"
            return f"{part.tool_name} {outcome}: {truncate_middle(part.content, data_limit)}"
