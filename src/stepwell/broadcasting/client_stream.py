"""Runs an agent for a client that reads what happens while it happens, in the client's protocol.

Called by ``ag_ui`` and ``ai_sdk``, which bring the translation.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from inspect import isawaitable
from typing import Any, Protocol

from stepwell.agent import Agent
from stepwell.continuation import Cancellation
from stepwell.errors import StepwellError, text_of
from stepwell.events import AgentEvent
from stepwell.state import AgentState

logger = logging.getLogger("stepwell.broadcasting")

Told = list[dict[str, Any]]
OnState = Callable[[AgentState], Awaitable[None] | None]


class ClientInputError(StepwellError, ValueError):
    """What a client sent can't become a state to run; the message names the field."""


class ClientTranslator(Protocol):
    """What a client is told, in its protocol. Pure but for what it remembers of the run."""

    def start(self, state: AgentState, /) -> Told:
        """Before the run."""
        ...

    def events(self, event: AgentEvent, /) -> Told:
        """At an event of the run or of its subagents."""
        ...

    def step(self, state: AgentState, /) -> Told:
        """After a step, when the run goes on."""
        ...

    def finish(self, state: AgentState, /) -> Told:
        """At the end: the result."""
        ...

    def fail(self, message: str, code: str, /) -> Told:
        """At the end of a run that has no result."""
        ...


async def client_stream(
    agent: Agent,
    task: str | AgentState,
    translator: ClientTranslator,
    *,
    cancellation: Cancellation | None,
    on_state: OnState | None,
) -> AsyncGenerator[dict[str, Any], None]:
    """Run the agent and yield what the client is told. Whoever leaves early ends the run, which is
    at most one step ahead of its reader."""
    run = _Run(agent, translator, on_state)
    worker = asyncio.create_task(run.to_the_end(task, cancellation))
    worker.add_done_callback(lambda _: run.batches.put_nowait(None))
    try:
        while (batch := await run.batches.get()) is not None:
            for told in batch:
                yield told
            run.batches.task_done()
        for told in run.fault_of(worker):
            yield told
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


class _Run:
    """One run and what it has for its reader."""

    def __init__(
        self, agent: Agent, translator: ClientTranslator, on_state: OnState | None
    ) -> None:
        self.batches: asyncio.Queue[Told | None] = asyncio.Queue()
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

    def fault_of(self, worker: "asyncio.Task[None]") -> Told:
        """The end of a run that broke; nothing when the reader was told of its end already."""
        if self._has_ended:
            return []
        if worker.cancelled() or (fault := worker.exception()) is None:
            return self._translator.fail("the run was ended from outside", "cancelled")
        kind = type(fault).__name__
        if isinstance(fault, StepwellError):
            return self._translator.fail(text_of(fault), kind)
        # What a defect says is for the log, not for the browser.
        logger.error("a run for a client broke off", exc_info=fault)
        return self._translator.fail(f"the run broke off ({kind})", kind)

    def _hear(self, event: AgentEvent) -> None:
        self._put(self._translator.events(event))

    def _put(self, batch: Told) -> None:
        if batch:
            self.batches.put_nowait(batch)
