"""Runs an agent as a stream of AG-UI events, or as the body of a response."""

from collections.abc import AsyncGenerator, Mapping

from stepwell.agent import Agent
from stepwell.continuation import Cancellation
from stepwell.protocols.ag_ui.translator import AgUiTranslator
from stepwell.protocols.client_stream import OnState, WireEvent, client_stream, sse_stream
from stepwell.state import AgentState

AG_UI_HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
"""The headers of the response; the last one turns off buffering in nginx."""


def ag_ui_events(
    agent: Agent,
    task: str | AgentState,
    *,
    thread_id: str,
    run_id: str,
    cancellation: Cancellation | None = None,
    on_state: OnState | None = None,
) -> AsyncGenerator[WireEvent, None]:
    """Run the agent and yield AG-UI events as they happen.

    The stream always ends with RUN_FINISHED or RUN_ERROR. The run is at most one step ahead of its
    reader. It ends if the reader leaves the iteration early, or falls 10,000 events behind within a
    step. ``on_state``, sync or async, is called with the state after each step and, before the last
    event, with the result, so that it can be kept for the thread.
    """
    translator = AgUiTranslator(thread_id, run_id)
    return client_stream(agent, task, translator, cancellation=cancellation, on_state=on_state)


def ag_ui_stream(
    agent: Agent,
    task: str | AgentState,
    *,
    thread_id: str,
    run_id: str,
    cancellation: Cancellation | None = None,
    on_state: OnState | None = None,
) -> AsyncGenerator[bytes, None]:
    """Return the same as the body of a response: server-sent events."""
    events = ag_ui_events(
        agent,
        task,
        thread_id=thread_id,
        run_id=run_id,
        cancellation=cancellation,
        on_state=on_state,
    )
    return sse_stream(events)
