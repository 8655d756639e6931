"""Stands in for the outside world in a replay: the model and tools return their stored results, and
the clock shows the stored times. Only ``replay`` uses it.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from stepwell.continuation import (
    AgentStop,
    StopReason,
    StopSignal,
)
from stepwell.errors import ModelError, ModelErrorKind
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.messages import ThinkingPart, ToolCall, Usage
from stepwell.models import ModelRequest, ModelResponse, ResponseEnd, StreamPart
from stepwell.replay.metadata import MetadataOfTools
from stepwell.replay.stored_execution import ReplaySource
from stepwell.replay.votes import outside_signals, signal_of_call, with_votes_of
from stepwell.state import AgentState, StepExecution, ToolOutcome
from stepwell.tools.ledger import LedgerEntry
from stepwell.tools.results import Finished, blank

FIRST = 2_000_000
LAST = -2_000_000
NAME = "replay"


class ReplayClock:
    """Shows the times of the step that is replayed; nobody waits."""

    def __init__(self, at: datetime) -> None:
        self._now = at
        self._elapsed = 0.0

    def now(self) -> datetime:
        """The recorded time."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the run was entered, as far as they were recorded."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Nobody waits: the times that are shown have the waits in them."""

    def show(self, at: datetime, elapsed: float) -> None:
        """Another time."""
        self._now, self._elapsed = at, elapsed


class StoredModel:
    """Says what the model said in each step; whatever else asks it gets no answer."""

    def __init__(self, stored: ReplaySource, clock: ReplayClock, name: str) -> None:
        self.name = name
        self.has_run_out = False
        """Whether a step was asked for that is not stored."""
        self._stored = stored
        self._clock = clock
        self._asked: tuple[int, Any] = (0, None)

    def expect(self, context: HookContext) -> None:
        """The hook that knows which request is the conversation's."""
        if context.request is not None:
            self._asked = (context.state.step_number, context.request.messages)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The stored turn; an error if there was one."""
        number, messages = self._asked
        if request.messages is not messages:
            raise ModelError(
                "a replay asks no model", kind=ModelErrorKind.INVALID_REQUEST, retryable=False
            )
        stored = self._stored.step(number)
        if stored is None:
            raise AgentStop(self._end_without_step())
        step = stored.step
        if step.response is None:
            raise ModelError("the stored error")  # its step is put in place of this one's
        usage, cost = _of_model(stored)
        return ModelResponse(
            text=step.text,
            tool_calls=step.response.tool_calls,
            thinking=tuple(p for p in step.response.parts if isinstance(p, ThinkingPart)),
            parts=step.response.parts,
            finish_reason=step.finish_reason,
            usage=usage,
            cost=cost,
            model=step.model,
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The same at once."""
        yield ResponseEnd(await self.respond(request))

    def _end_without_step(self) -> StopSignal:
        final = self._stored.final
        if signals := self._stored.end_from_outside():
            self._clock.show(
                final.updated_at, self._stored.elapsed_seconds(len(final.steps) + 1)[1]
            )
            return signals[0]
        self.has_run_out = True
        return StopSignal(
            reason=StopReason.STOP_REQUESTED, source=NAME, message="nothing more is stored"
        )


class StoredDriver:
    """Gives the stored steps, for an agent with a driver of its own."""

    def __init__(self, stored: ReplaySource, model: StoredModel, metadata: MetadataOfTools) -> None:
        self._stored = stored
        self._model = model
        self._metadata = metadata

    def bound_to(self, *_parts: object, **_more: object) -> "StoredDriver":
        """The same driver: a stored step needs neither tools nor a prompt."""
        return self

    async def use_tools(self, state: AgentState) -> AgentState:
        """The step as it was."""
        stored = self._stored.step(state.step_number)
        if stored is None:
            self._model.has_run_out = True
            raise AgentStop("nothing more is stored", source=NAME)
        if stored.step.tool_executions:
            state = state.with_metadata(self._metadata.current_tool_metadata(state.metadata))
        return state.with_current_step(stored.step)


class ReplayLedger:
    """Answers every call with what it came to; no tool runs."""

    def __init__(self, stored: ReplaySource, metadata: MetadataOfTools) -> None:
        self.unknown: list[str] = []
        """Calls that were not made then."""
        self._stored = stored
        self._metadata = metadata

    def recall(self, entry: LedgerEntry, /) -> Finished:
        """What the call came to."""
        return self._stored_result(entry.state, entry.call)

    async def begin(self, entries: Sequence[LedgerEntry], /) -> None:
        """Nothing is noted: nothing runs."""

    def end(self, entry: LedgerEntry, finished: Finished, /) -> None:
        """Nothing is noted: nothing ran."""

    def _stored_result(self, state: AgentState, call: ToolCall) -> Finished:
        number = state.step_number
        ran = self._stored.call(number, call.id)
        if ran is None:
            self.unknown.append(f"{call.name} is called in step {number}, and was not then")
            unknown = blank(call, self._stored.final.updated_at)
            return Finished(execution=replace(unknown, outcome=ToolOutcome.UNKNOWN, text=NAME))
        step = self._stored.step(number)
        signal = None if step is None else signal_of_call(step.outcome, ran)
        waits_for = self._stored.pending(number, call.id)
        metadata = self._metadata.tool_metadata(state.metadata)
        return Finished(execution=ran, signal=signal, waits_for=waits_for, metadata=metadata)


def replay_hooks(
    stored: ReplaySource,
    clock: ReplayClock,
    model: StoredModel,
    metadata: MetadataOfTools,
) -> tuple[Hook, ...]:
    """What an agent is given to be replayed."""

    def show_step_start(context: HookContext) -> None:
        show_start(stored, clock, context.state.step_number)

    def add_messages(context: HookContext) -> HookContext | None:
        metadata.begin(context.state.step_number)
        said = stored.messages_before(context.state.step_number)
        return context.with_state(context.state.with_message(*said)) if said else None

    def end_step(context: HookContext) -> HookContext | None:
        # The step is made and not recorded yet, so its number is the number of steps.
        state, number = context.state, context.state.step_count
        step = stored.step(number)
        if step is None:
            return None
        if step.step.response is None and step.step.failures:
            state = state.with_step_amended(step.step)
        for signal in outside_signals(step.outcome):
            if signal not in state.signals:
                state = state.with_signal(signal)
        state = with_votes_of(stored.left_out, step.outcome, state)
        state = metadata.settle(state, with_tools=bool(step.step.tool_executions))
        clock.show(step.completed_at, stored.elapsed_seconds(number)[1])
        return context.with_state(state)

    return (
        make_hook(HookTrigger.BEFORE_EXECUTION, show_step_start, priority=LAST, name=NAME),
        make_hook(HookTrigger.BEFORE_STEP, add_messages, priority=FIRST, name=NAME),
        make_hook(HookTrigger.BEFORE_INFERENCE, model.expect, priority=LAST, name=NAME),
        make_hook(HookTrigger.AFTER_STEP, end_step, priority=LAST, name=NAME),
    )


def show_start(stored: ReplaySource, clock: ReplayClock, number: int) -> None:
    """The time at which a step began."""
    step = stored.step(number)
    at = stored.final.updated_at if step is None else step.started_at
    clock.show(at, stored.elapsed_seconds(number)[0])


def _of_model(stored: StepExecution) -> tuple[Usage, float]:
    """What the model's turn used: the step's, without what its tools used."""
    usage, cost = stored.step.usage, stored.step.cost
    for ran in stored.step.tool_executions:
        cost -= ran.cost
        usage = Usage(
            **{
                name: max(0, getattr(usage, name) - getattr(ran.usage, name))
                for name in usage.__struct_fields__
            }
        )
    return usage, max(0.0, cost)
