"""Runs an agent for an AI SDK client: its chunks as they happen, and as the body of a response."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from msgspec import json

from stepwell.agent import Agent
from stepwell.broadcasting.ai_sdk.translator import AiSdkTranslator
from stepwell.continuation import Cancellation
from stepwell.errors import ConfigurationError, StepwellError, text_of
from stepwell.events import AgentEvent
from stepwell.state import AgentState

logger = logging.getLogger("stepwell.broadcasting")

AI_SDK_HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
}
"""The headers of the response; the last one keeps nginx from holding the stream back."""

AI_SDK_DONE = b"data: [DONE]\n\n"
"""What comes behind the last chunk."""

Keep = Callable[[AgentState], Awaitable[None] | None]


def encode_sse(chunk: Mapping[str, Any]) -> bytes:
    r"""A chunk as a server-sent event.

    >>> encode_sse({"type": "finish"})
    b'data: {"type":"finish"}\n\n'
    """
    return b"data: " + json.encode(chunk) + b"\n\n"


async def ai_sdk_stream(
    agent: Agent,
    task: str | AgentState,
    *,
    message_id: str | None = None,
    cancellation: Cancellation | None = None,
    keep: Keep | None = None,
) -> AsyncGenerator[bytes, None]:
    """Run the agent and yield the body of the response, to the closing mark."""
    chunks = ai_sdk_chunks(agent, task, message_id=message_id, cancellation=cancellation, keep=keep)
    try:
        async for chunk in chunks:
            yield encode_sse(chunk)
    finally:
        await chunks.aclose()
    yield AI_SDK_DONE


async def ai_sdk_chunks(
    agent: Agent,
    task: str | AgentState,
    *,
    message_id: str | None = None,
    cancellation: Cancellation | None = None,
    keep: Keep | None = None,
) -> AsyncGenerator[dict[str, Any], None]:
    """Run the agent and yield the chunks of the answer as they happen.

    ``message_id`` is the id of the answer; a run that goes on with an answer that the client has
    keeps its id: see ``response_message_id``. ``keep`` is given the final state, before the client
    is told of the end. Whoever leaves the iteration early ends the run.
    """
    message_id = message_id or agent.plan.new_id()
    try:
        state = task if isinstance(task, AgentState) else agent.new_state(task)
    except ConfigurationError as error:
        for chunk in AiSdkTranslator(message_id).end(error=text_of(error)):
            yield chunk
        return
    translator = AiSdkTranslator(message_id, answered=[a.call.id for a in state.answered])
    told: asyncio.Queue[AgentEvent | AgentState | None] = asyncio.Queue()
    worker = asyncio.create_task(_run(agent, state, cancellation, told, keep))
    reached: AgentState | None = None
    try:
        while (item := await told.get()) is not None:
            if isinstance(item, AgentState):
                reached = item
            for chunk in _chunks_of(item, translator):
                yield chunk
            told.task_done()
        await asyncio.wait([worker])
        for chunk in translator.end(reached, error=_fault_of(worker)):
            yield chunk
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def _run(
    agent: Agent,
    state: AgentState,
    cancellation: Cancellation | None,
    told: "asyncio.Queue[AgentEvent | AgentState | None]",
    keep: Keep | None,
) -> None:
    """Run beside the consumer, at most one step ahead of it."""
    run = agent.loop.iterator(state, cancellation=cancellation, tap=told.put_nowait)
    try:
        async for reached in run:
            told.put_nowait(reached)
            await told.join()
            if keep is not None and not agent.has_next_step(reached):
                kept = keep(reached)
                if isawaitable(kept):
                    await kept
    finally:
        told.put_nowait(None)


def _chunks_of(item: AgentEvent | AgentState, translator: AiSdkTranslator) -> list[dict[str, Any]]:
    if isinstance(item, AgentState):
        return translator.recorded(item)
    return translator.chunks(item)


def _fault_of(worker: "asyncio.Task[None]") -> str | None:
    """What ended a run that could not end as data, in words for the client."""
    if worker.cancelled():
        return "the run was ended from outside"
    fault = worker.exception()
    if fault is None:
        return None
    if isinstance(fault, StepwellError):
        return text_of(fault)
    # What a defect says is for the log, not for the browser.
    logger.error("a run for an AI SDK client broke off", exc_info=fault)
    return f"the run broke off ({type(fault).__name__})"
