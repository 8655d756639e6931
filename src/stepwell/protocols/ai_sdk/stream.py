"""Runs an agent as a stream of AI SDK chunks, or as the body of a response."""

from collections.abc import AsyncGenerator, Mapping

from stepwell.agent import Agent
from stepwell.continuation import Cancellation
from stepwell.protocols.ai_sdk.translator import AiSdkTranslator
from stepwell.protocols.client_stream import OnState, WireEvent, client_stream, sse_stream
from stepwell.state import AgentState

AI_SDK_HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
}
"""The headers of the response; the last one turns off buffering in nginx."""

AI_SDK_DONE = b"data: [DONE]\n\n"
"""The end of the stream, after the last chunk."""


def ai_sdk_chunks(
    agent: Agent,
    task: str | AgentState,
    *,
    message_id: str | None = None,
    cancellation: Cancellation | None = None,
    on_state: OnState | None = None,
) -> AsyncGenerator[WireEvent, None]:
    """Run the agent and yield the chunks of the answer as they happen.

    ``message_id`` is the id of the answer; a run that continues an answer of the client keeps its
    id: see ``response_message_id``. ``on_state``, sync or async, is called with the state after
    each step and, before the last chunk, with the result. The run is at most one step ahead of its
    reader. It ends if the reader leaves the iteration early, or falls 10,000 events behind within a
    step."""
    translator = AiSdkTranslator(message_id or agent.plan.new_id())
    return client_stream(agent, task, translator, cancellation=cancellation, on_state=on_state)


def ai_sdk_stream(
    agent: Agent,
    task: str | AgentState,
    *,
    message_id: str | None = None,
    cancellation: Cancellation | None = None,
    on_state: OnState | None = None,
) -> AsyncGenerator[bytes, None]:
    """Return the same as the body of a response, with the closing mark."""
    chunks = ai_sdk_chunks(
        agent, task, message_id=message_id, cancellation=cancellation, on_state=on_state
    )
    return sse_stream(chunks, AI_SDK_DONE)
