"""What a model answers: a whole response, or the parts of one as they arrive."""

from msgspec import Struct

from stepwell.messages import FinishReason, Part, ThinkingPart, ToolCall, Usage


class ModelResponse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One whole turn: text, tool calls, why it ended, and what it used."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[ThinkingPart, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage = Usage()
    cost: float = 0.0
    model: str | None = None
    request_id: str | None = None
    parts: tuple[Part, ...] = ()
    """The same in the order in which the model gave it, where it thought in between: some providers
    want to see it so again."""


class TextDelta(Struct, frozen=True, tag="text_delta", forbid_unknown_fields=True):
    """A piece of the answer's text."""

    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta", forbid_unknown_fields=True):
    """A piece of the model's reasoning."""

    text: str


class ToolCallStart(
    Struct, frozen=True, kw_only=True, tag="tool_call_start", forbid_unknown_fields=True
):
    """The model begins to call a tool; its arguments follow. ``index`` counts the calls from 0."""

    index: int
    id: str
    name: str


class ToolCallDelta(
    Struct, frozen=True, kw_only=True, tag="tool_call_delta", forbid_unknown_fields=True
):
    """A piece of a tool call's arguments, as JSON text; it never becomes text of the answer."""

    index: int
    arguments: str


class ToolCallEnd(
    Struct, frozen=True, kw_only=True, tag="tool_call_end", forbid_unknown_fields=True
):
    """A tool call is whole."""

    index: int
    call: ToolCall


class UsageReport(Struct, frozen=True, tag="usage", forbid_unknown_fields=True):
    """What the turn has used so far; a later report replaces an earlier one."""

    usage: Usage
    cost: float = 0.0


class ResponseEnd(Struct, frozen=True, tag="end", forbid_unknown_fields=True):
    """The last part of every stream: the whole response."""

    response: ModelResponse


StreamPart = (
    TextDelta
    | ThinkingDelta
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | UsageReport
    | ResponseEnd
)
