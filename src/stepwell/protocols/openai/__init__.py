"""A run in the words of OpenAI's API: chat completions and responses.

Written against the official clients; nothing of them is needed at run time.
"""

from stepwell.protocols.openai.chat import ChatCompletionTranslator
from stepwell.protocols.openai.input import OpenAiInput, read_chat_input, read_responses_input
from stepwell.protocols.openai.responses import ResponseTranslator
from stepwell.protocols.openai.run_end import RunFailedError

__all__ = [
    "ChatCompletionTranslator",
    "OpenAiInput",
    "ResponseTranslator",
    "RunFailedError",
    "read_chat_input",
    "read_responses_input",
]
