"""Runs an agent for a client that reads the run as it happens, in the client's protocol.

Called by ``ag_ui`` and ``ai_sdk``, which supply the translator.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from inspect import isawaitable
from typing import Any, Protocol

from stepwell.agent import Agent
from stepwell.continuation import Cancellation
from stepwell.errors import ConfigurationError, StepwellError, text_of
from stepwell.events import AgentEvent
from stepwell.journal import Entry, Projector
from stepwell.loop import cut_off_together
from stepwell.state import AgentState
from stepwell.text import json_bytes

logger = logging.getLogger("stepwell.protocols")

MAX_UNREAD = 10_000
"""Batches that may wait for a reader; a run whose reader is further behind is cancelled."""

WireEvent = dict[str, Any]
"""One event or chunk of a client's protocol."""

OnState = Callable[[AgentState], Awaitable[None] | None]


class ClientInputError(StepwellError, ValueError):
    """Raised when a client's input is invalid; the message names the field."""


class ClientTranslator(Protocol):
    """Translates a run into a client's protocol. Pure, except for what it remembers of the run."""

    def start(self, state: AgentState, /) -> list[WireEvent]:
        """Return what to send before the run."""
        ...

    def translate(self, entry: Entry, /) -> list[WireEvent]:
        """Return what to send for an entry of the run or of its subagents."""
        ...

    def step(self, state: AgentState, /) -> list[WireEvent]:
        """Return what to send after a step."""
        ...

    def finish(self, state: AgentState, /) -> list[WireEvent]:
        """Return what to send at the end, with the result."""
        ...

    def restart(self, state: AgentState, /) -> list[WireEvent]:
        """Return what to send before a step begins again because another worker took over; the
        state is the newest that is stored."""
        ...

    def fail(self, message: str, code: str, /) -> list[WireEvent]:
        """Return what to send at the end of a run that has no result."""
        ...


def client_stream(
    agent: Agent,
    task: str | AgentState,
    translator: ClientTranslator,
    *,
    cancellation: Cancellation | None,
    on_state: OnState | None,
    max_unread: int = MAX_UNREAD,
) -> AsyncGenerator[WireEvent, None]:
    """Run the agent and yield what to send to the client. The run is at most one step ahead of its
    reader, and ends if the reader leaves early. If the reader falls ``max_unread`` batches behind,
    the run is cancelled and the stream ends with an error."""
    if not isinstance(task, str | AgentState):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"task is {task!r:.80}; give the text of the user or the AgentState to run"
        )
    run = _StreamedRun(agent, translator, on_state, max_unread)
    return _read_run(run, task, cancellation)


async def sse_stream(
    stream: AsyncGenerator[WireEvent, None], end: bytes = b""
) -> AsyncGenerator[bytes, None]:
    """Yield the stream as the body of a response, then ``end``."""
    async with aclosing(stream):
        async for event in stream:
            yield encode_sse(event)
    if end:
        yield end


def encode_sse(event: Mapping[str, Any]) -> bytes:
    r"""Return an event or chunk as a server-sent event.

    >>> encode_sse({"type": "finish", "half": "\ud83d", "big": 2**70})
    b'data: {"type":"finish","half":"\xef\xbf\xbd","big":1180591620717411303424}\n\n'
    """
    return b"data: " + json_bytes(event, default=str) + b"\n\n"


async def _read_run(
    run: "_StreamedRun", task: str | AgentState, cancellation: Cancellation | None
) -> AsyncGenerator[WireEvent, None]:
    worker = asyncio.create_task(run.run(task, cancellation))
    worker.add_done_callback(lambda _: run.batches.put_nowait(None))
    run.worker = worker
    try:
        while (batch := await run.batches.get()) is not None:
            for event in batch:
                yield event
            run.batches.task_done()
        for event in run.fault_events(worker):
            yield event
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


class _StreamedRun:
    """One run and what waits for its reader."""

    def __init__(
        self,
        agent: Agent,
        translator: ClientTranslator,
        on_state: OnState | None,
        max_unread: int,
    ) -> None:
        self.batches: asyncio.Queue[list[WireEvent] | None] = asyncio.Queue()
        self.worker: asyncio.Task[None] | None = None
        self._agent = agent
        self._translator = translator
        self._projector = Projector()
        self._projector.expect_beginnings()
        self._on_state = on_state
        self._max_unread = max_unread
        self._is_keeping = False
        self._is_too_far_ahead = False
        self._has_ended = False

    async def run(self, task: str | AgentState, cancellation: Cancellation | None) -> None:
        """Run the agent beside the reader."""
        state = task if isinstance(task, AgentState) else self._agent.new_state(task)
        self._put(self._translator.start(state))
        loop, steps = self._agent.loop, state.step_count
        states = loop.iterator(state, cancellation=cancellation, tap=self._hear)
        async with cut_off_together(states):
            async for reached in states:
                await self._keep(reached)
                if reached.step_count != steps:
                    self._put(self._translator.step(reached))
                steps = reached.step_count
                if loop.has_next_step(reached):
                    await self.batches.join()
                else:
                    self._put(self._translator.finish(reached))
                    self._has_ended = not self._is_too_far_ahead

    def fault_events(self, worker: "asyncio.Task[None]") -> list[WireEvent]:
        """Return the end of a run that broke off; nothing if the reader has its end already."""
        if self._has_ended:
            return []
        if self._is_too_far_ahead:
            return self._translator.fail("the client reads too slowly", "slow_reader")
        if worker.cancelled() or (fault := worker.exception()) is None:
            return self._translator.fail("the run was ended from outside", "cancelled")
        kind = type(fault).__name__
        if isinstance(fault, StepwellError) and not self._is_keeping:
            return self._translator.fail(text_of(fault), kind)
        # The text of a defect, or of a store that can't keep a state, is for the log.
        logger.error("a run for a client broke off", exc_info=fault)
        return self._translator.fail(f"the run broke off ({kind})", kind)

    async def _keep(self, reached: AgentState) -> None:
        if self._on_state is None:
            return
        self._is_keeping = True
        if isawaitable(kept := self._on_state(reached)):
            await kept
        self._is_keeping = False

    def _hear(self, event: AgentEvent) -> None:
        entries = self._projector.entries(event)
        self._put([event for entry in entries for event in self._translator.translate(entry)])

    def _put(self, batch: list[WireEvent]) -> None:
        if not batch or self._is_too_far_ahead:
            return
        self.batches.put_nowait(batch)
        if self.batches.qsize() == self._max_unread:
            # Later: a reader that had no turn yet is not slow.
            asyncio.get_running_loop().call_soon(self._check_reader)

    def _check_reader(self) -> None:
        if self.batches.qsize() >= self._max_unread and self.worker is not None:
            self._is_too_far_ahead = True
            self.worker.cancel()
