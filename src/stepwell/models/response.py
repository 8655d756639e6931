"""Responses of models, complete or in parts as they arrive."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from stepwell.errors import ModelError
from stepwell.messages import FinishReason, Part, ThinkingPart, ToolCall, Usage


class ModelResponse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The response of one turn: text, tool calls, finish reason and usage."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[ThinkingPart, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage = Usage()
    cost: float = 0.0
    model: str | None = None
    request_id: str | None = None
    parts: tuple[Part, ...] = ()
    """The same content in the model's order, if it thought in between: some providers require that
    order in the next request."""


class TextDelta(Struct, frozen=True, tag="text_delta", forbid_unknown_fields=True):
    """A piece of the answer's text."""

    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta", forbid_unknown_fields=True):
    """A piece of the model's reasoning."""

    text: str


class ToolCallStart(
    Struct, frozen=True, kw_only=True, tag="tool_call_start", forbid_unknown_fields=True
):
    """The model starts a tool call. Its arguments follow. ``index`` counts calls from 0."""

    index: int
    id: str
    name: str


class ToolCallDelta(
    Struct, frozen=True, kw_only=True, tag="tool_call_delta", forbid_unknown_fields=True
):
    """A piece of a tool call's arguments, as JSON text."""

    index: int
    arguments: str


class ToolCallEnd(
    Struct, frozen=True, kw_only=True, tag="tool_call_end", forbid_unknown_fields=True
):
    """A tool call is complete."""

    index: int
    call: ToolCall


class UsageReport(Struct, frozen=True, tag="usage", forbid_unknown_fields=True):
    """The usage of the turn so far. A later report replaces an earlier one."""

    usage: Usage
    cost: float = 0.0


class ResponseEnd(Struct, frozen=True, tag="end", forbid_unknown_fields=True):
    """The last part of every stream: the complete response."""

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


def check_response(response: Any, model: str) -> ModelResponse:
    """Return what a model returned if it is a valid response. Models may be third-party code."""
    if (
        type(response) is ModelResponse
        and type(response.text) is str
        and type(response.usage) is Usage
        and type(response.cost) is float
        and _are_valid(response.tool_calls)
    ):
        return response
    if isinstance(response, ModelResponse) and cast("Any", response.text) is None:
        return check_response(replace(response, text=""), model)
    raise ModelError(f"model {model} returned {_problem_with(response)}")


def _are_valid(calls: Any) -> bool:
    if type(calls) is not tuple:
        return False
    for call in cast("tuple[Any, ...]", calls):
        is_call = type(call) is ToolCall
        if not is_call or not (type(call.arguments) is dict or isinstance(call.arguments, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return False
    return True


def _problem_with(response: Any) -> str:
    if not isinstance(response, ModelResponse):
        return (
            f"a {type(response).__name__}; its respond() must be async and return a ModelResponse"
        )
    if type(response.text) is not str:
        return f"a {type(response.text).__name__} as text"
    if type(response.usage) is not Usage:
        return f"{response.usage!r:.80} as usage; give a Usage"
    if type(response.cost) is not float:
        return f"{response.cost!r:.80} as cost; give a float"
    return (
        f"a {type(response.tool_calls).__name__} as tool_calls; give a tuple of ToolCall whose "
        "arguments are a dict, with malformed=text if they could not be parsed"
    )
