"""What a model answers: a whole response, or the parts of one as they arrive."""

from msgspec import Struct

from stepwell.messages import FinishReason, ThinkingPart, ToolCall, Usage


class ModelResponse(Struct, frozen=True, kw_only=True):
    """One whole turn: text, tool calls, why it ended, and what it used."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[ThinkingPart, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage = Usage()
    cost: float = 0.0
    model: str | None = None


class TextDelta(Struct, frozen=True, tag="text_delta"):
    """A piece of the answer's text."""

    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta"):
    """A piece of the model's reasoning."""

    text: str


class ToolCallDelta(Struct, frozen=True, kw_only=True, tag="tool_call_delta"):
    """A piece of a tool call's arguments; it never becomes text."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class ResponseEnd(Struct, frozen=True, tag="end"):
    """The last part of every stream: the whole response."""

    response: ModelResponse


StreamPart = TextDelta | ThinkingDelta | ToolCallDelta | ResponseEnd
