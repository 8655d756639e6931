"""A part of a conversation as text that a model can summarize, within a bounded size."""

from collections.abc import Iterator, Sequence

from msgspec import json

from stepwell.messages import (
    FilePart,
    ImagePart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
)
from stepwell.messages.parts import Part
from stepwell.text import cut_middle

_SPEAKERS = {
    Role.SYSTEM: "Instruction",
    Role.DEVELOPER: "Instruction",
    Role.USER: "User",
    Role.ASSISTANT: "Assistant",
    Role.TOOL: "Tool",
}
_BOUNDS = ((8000, 2000), (2000, 500), (500, 120))
"""Characters of a text, and of arguments or a tool's result: tried in turn until all fits."""


def transcript(messages: Sequence[Message], *, limit: int) -> str:
    """Who said what, in at most ``limit`` characters; what is too long is cut in its middle.

    >>> print(transcript([Message.user("Hi"), Message.assistant("Hello")], limit=100))
    User: Hi
    Assistant: Hello
    """
    told = ""
    for of_text, of_data in _BOUNDS:
        told = "\n".join(line for m in messages for line in _lines(m, of_text, of_data))
        if len(told) <= limit:
            return told
    return cut_middle(told, limit)


def _lines(message: Message, of_text: int, of_data: int) -> Iterator[str]:
    speaker = _SPEAKERS[message.role]
    for part in message.parts:
        line = _line(part, speaker, of_text, of_data)
        if line:
            yield line


def _line(part: Part, speaker: str, of_text: int, of_data: int) -> str:
    match part:
        case TextPart():
            return f"{speaker}: {cut_middle(part.text, of_text)}"
        case ToolCall():
            arguments = part.malformed or json.encode(part.arguments, enc_hook=str).decode()
            return f"{speaker} called {part.name}: {cut_middle(arguments, of_data)}"
        case ThinkingPart():
            return ""
        case ImagePart():
            return f"{speaker} gave an image ({part.media_type or part.url or 'no type':.80})"
        case FilePart():
            known = part.name or part.media_type or part.url or "no name"
            return f"{speaker} gave a file ({known:.80})"
        case _:
            outcome = "failed" if part.is_error else "gave"
            return f"{part.tool_name} {outcome}: {cut_middle(part.content, of_data)}"
