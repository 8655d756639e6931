"""A run as a Vercel AI SDK UI message stream, the data stream that ``useChat`` reads.

Written against version 6 of the npm package ``ai``; nothing of it is needed at run time.
"""

from stepwell.protocols.ai_sdk.request import response_message_id, state_from_ai_sdk
from stepwell.protocols.ai_sdk.stream import (
    AI_SDK_DONE,
    AI_SDK_HEADERS,
    ai_sdk_chunks,
    ai_sdk_stream,
)
from stepwell.protocols.ai_sdk.translator import AiSdkTranslator
from stepwell.protocols.client_stream import encode_sse

__all__ = [
    "AI_SDK_DONE",
    "AI_SDK_HEADERS",
    "AiSdkTranslator",
    "ai_sdk_chunks",
    "ai_sdk_stream",
    "encode_sse",
    "response_message_id",
    "state_from_ai_sdk",
]
