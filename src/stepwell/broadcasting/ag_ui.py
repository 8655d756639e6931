"""Runs an agent as a stream of AG-UI events, for pages that speak AG-UI (CopilotKit and others).

The page that asks sends a RunAgentInput (``state_from_ag_ui``) and is sent server-sent events
(``encode_sse``). Docs: docs/howto/ag-ui.md.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from stepwell.agent import Agent
from stepwell.broadcasting.ag_ui_input import state_from_ag_ui
from stepwell.broadcasting.ag_ui_messages import json_bytes
from stepwell.broadcasting.ag_ui_speaker import WireEvent
from stepwell.broadcasting.ag_ui_translator import AgUiTranslator
from stepwell.continuation import Cancellation
from stepwell.errors import StepwellError, text_of
from stepwell.events import AgentEvent
from stepwell.state import AgentState

__all__ = ["AgUiTranslator", "ag_ui_events", "encode_sse", "state_from_ag_ui"]


logger = logging.getLogger("stepwell.broadcasting")

OnState = Callable[[AgentState], Awaitable[None] | None]


async def ag_ui_events(
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
    run = _Run(agent, AgUiTranslator(thread_id, run_id), on_state)
    worker = asyncio.create_task(run.to_the_end(task, cancellation))
    worker.add_done_callback(lambda _: run.batches.put_nowait(None))
    try:
        while (batch := await run.batches.get()) is not None:
            for event in batch:
                yield event
            run.batches.task_done()
        for event in run.fault_of(worker):
            yield event
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


def encode_sse(event: Mapping[str, Any]) -> bytes:
    """One event as a server-sent event.

    >>> encode_sse({"type": "RUN_ERROR", "message": "no"})
    b'data: {"type":"RUN_ERROR","message":"no"}\\n\\n'
    """
    return b"data: " + json_bytes(event) + b"\n\n"


class _Run:
    """One run and what it has for its reader."""

    def __init__(self, agent: Agent, translator: AgUiTranslator, on_state: OnState | None) -> None:
        self.batches: asyncio.Queue[list[WireEvent] | None] = asyncio.Queue()
        self._agent = agent
        self._translator = translator
        self._on_state = on_state
        self._has_ended = False

    async def to_the_end(self, task: str | AgentState, cancellation: Cancellation | None) -> None:
        """Run beside the reader."""
        state = task if isinstance(task, AgentState) else self._agent.new_state(task)
        self._put(self._translator.start(state))
        loop = self._agent.loop
        async for reached in loop.iterator(state, cancellation=cancellation, tap=self._hear):
            if self._on_state is not None and isawaitable(kept := self._on_state(reached)):
                await kept
            if loop.has_next_step(reached):
                self._put(self._translator.step(reached))
                await self.batches.join()
            else:
                self._put(self._translator.finish(reached))
                self._has_ended = True

    def fault_of(self, worker: "asyncio.Task[None]") -> list[WireEvent]:
        """The end of a run that broke; nothing when the reader was told of its end already."""
        if self._has_ended:
            return []
        if worker.cancelled() or (fault := worker.exception()) is None:
            return self._translator.fail("the run was ended from outside", "cancelled")
        if isinstance(fault, StepwellError):
            return self._translator.fail(text_of(fault), type(fault).__name__)
        # What a defect says is for the log, not for the browser.
        logger.error("a run for an AG-UI client broke off", exc_info=fault)
        kind = type(fault).__name__
        return self._translator.fail(f"the run broke off ({kind})", kind)

    def _hear(self, event: AgentEvent) -> None:
        self._put(self._translator.events(event))

    def _put(self, batch: list[WireEvent]) -> None:
        if batch:
            self.batches.put_nowait(batch)
