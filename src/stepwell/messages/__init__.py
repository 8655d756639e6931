"""Messages, their parts, usage, and the append-only history that holds them."""

from stepwell.messages.history import History
from stepwell.messages.kept import Kept
from stepwell.messages.message import INCOMPLETE, Message, Role
from stepwell.messages.parts import (
    FilePart,
    ImagePart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from stepwell.messages.usage import FinishReason, Usage

__all__ = [
    "INCOMPLETE",
    "FilePart",
    "FinishReason",
    "History",
    "ImagePart",
    "Kept",
    "Message",
    "Part",
    "Role",
    "TextPart",
    "ThinkingPart",
    "ToolCall",
    "ToolResult",
    "Usage",
]
