"""The official SDKs' descriptions of what may be sent. For tests only."""

import warnings
from typing import Any

from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)

with warnings.catch_warnings():  # its source has escape sequences that Python warns of
    warnings.simplefilter("ignore")
    from google.genai import types as google

PARAMS = {
    "chat_completions": (CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming),
    "responses": (ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming),
    "messages": (MessageCreateParamsNonStreaming, MessageCreateParamsStreaming),
}

__all__ = ["PARAMS", "documented", "google"]


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
