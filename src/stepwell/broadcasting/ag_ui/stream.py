"""Runs an agent as a stream of AG-UI events, and writes them as server-sent events."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from stepwell.agent import Agent
from stepwell.broadcasting.ag_ui.messages import json_bytes
from stepwell.broadcasting.ag_ui.translator import AgUiTranslator
from stepwell.broadcasting.client_stream import OnState, client_stream
from stepwell.continuation import Cancellation
from stepwell.state import AgentState


def ag_ui_events(
    agent: Agent,
    task: str | AgentState,
    *,
    thread_id: str,
    run_id: str,
    cancellation: Cancellation | None = None,
    on_state: OnState | None = None,
) -> AsyncGenerator[dict[str, Any], None]:
    """Run the agent and yield what happens, as AG-UI events, while it happens.

    The stream always ends with RUN_FINISHED or RUN_ERROR. Whoever leaves the iteration early ends
    the run, which is at most one step ahead of its reader. ``on_state``, sync or async, is given
    the state after each step and, before the end is told, the result: to keep it for the thread.
    """
    translator = AgUiTranslator(thread_id, run_id)
    return client_stream(agent, task, translator, cancellation=cancellation, on_state=on_state)


def encode_sse(event: Mapping[str, Any]) -> bytes:
    """One event as a server-sent event.

    >>> encode_sse({"type": "RUN_ERROR", "message": "no"})
    b'data: {"type":"RUN_ERROR","message":"no"}\\n\\n'
    """
    return b"data: " + json_bytes(event) + b"\n\n"
