"""The four wire formats: from a request to a provider's JSON, and back from what it says."""

from stepwell.models.wire.chat_completions import ChatCompletions
from stepwell.models.wire.format import StreamReader, WireFormat
from stepwell.models.wire.gemini import Gemini
from stepwell.models.wire.messages import AnthropicMessages
from stepwell.models.wire.responses import OpenAIResponses

__all__ = [
    "AnthropicMessages",
    "ChatCompletions",
    "Gemini",
    "OpenAIResponses",
    "StreamReader",
    "WireFormat",
]
