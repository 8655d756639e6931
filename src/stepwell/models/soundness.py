"""Whether what a model returned is a response: models may be anyone's."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from stepwell.errors import ModelError
from stepwell.messages import ToolCall, Usage
from stepwell.models.response import ModelResponse


def sound(response: Any, model: str) -> ModelResponse:
    """What a model returned, if it is a response whose parts are what they should be."""
    if (
        type(response) is ModelResponse
        and type(response.text) is str
        and type(response.usage) is Usage
        and type(response.cost) is float
        and _are_sound(response.tool_calls)
    ):
        return response
    if isinstance(response, ModelResponse) and cast("Any", response.text) is None:
        return sound(replace(response, text=""), model)
    raise ModelError(f"model {model} returned {_what_is_wrong(response)}")


def _are_sound(calls: Any) -> bool:
    if type(calls) is not tuple:
        return False
    for call in cast("tuple[Any, ...]", calls):
        is_call = type(call) is ToolCall
        if not is_call or not (type(call.arguments) is dict or isinstance(call.arguments, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return False
    return True


def _what_is_wrong(response: Any) -> str:
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
        f"a {type(response.tool_calls).__name__} as tool_calls that is no tuple of ToolCall whose "
        "arguments are a dict, or malformed=text where they could not be parsed"
    )
