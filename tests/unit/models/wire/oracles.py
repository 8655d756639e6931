"""The official SDKs' descriptions of what may be sent. For tests only.

They take seconds to load, so only a process that runs these tests loads them.
"""

import warnings
from functools import cache
from typing import Any


@cache
def google_types() -> Any:
    """The types of Google's SDK."""
    with warnings.catch_warnings():  # its source has escape sequences that Python warns of
        warnings.simplefilter("ignore")
        from google.genai import types
    return types


@cache
def request_types(wire: str) -> tuple[Any, Any]:
    """The SDK's types of a request in this wire format, without and with streaming."""
    match wire:
        case "chat_completions":
            from openai.types.chat import completion_create_params as chat

            return (
                chat.CompletionCreateParamsNonStreaming,
                chat.CompletionCreateParamsStreaming,
            )
        case "responses":
            from openai.types.responses import response_create_params as responses

            return (
                responses.ResponseCreateParamsNonStreaming,
                responses.ResponseCreateParamsStreaming,
            )
        case "messages":
            from anthropic.types import message_create_params as messages

            return (
                messages.MessageCreateParamsNonStreaming,
                messages.MessageCreateParamsStreaming,
            )
        case _:
            raise ValueError(wire)


def documented(items: list[Any]) -> list[Any]:
    """The items of a Responses request as the SDK documents them: for what the model said it knows
    only texts without a type of their own, while OpenAI and llama.cpp take ``output_text``."""
    return [
        {**item, "content": "".join(part["text"] for part in item["content"])}
        if item.get("role") == "assistant"
        and {part["type"] for part in item["content"]} == {"output_text"}
        else item
        for item in items
    ]
