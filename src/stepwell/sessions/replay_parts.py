"""What stands in for the world when a stored execution is replayed: the model says what it said,
tools give what they gave, and the clock shows what it showed. Only ``replaying`` uses it.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from stepwell.continuation import (
    AgentStop,
    ContinuationDecision,
    ContinuationEvaluation,
    ContinuationOutcome,
    ContinueRequest,
    StopReason,
    StopSignal,
)
from stepwell.errors import ModelError, ModelErrorKind
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.messages import Message, ThinkingPart, ToolCall, Usage
from stepwell.models import ModelRequest, ModelResponse, ResponseEnd, StreamPart
from stepwell.sessions.recovery import as_result
from stepwell.state import AgentState, Pending, StepExecution, ToolExecution, ToolOutcome
from stepwell.tools import Tools
from stepwell.tools.ledger import LedgerEntry
from stepwell.tools.results import Finished, blank
from stepwell.tools.secrets import what_is_hidden

FIRST = 2_000_000
LAST = -2_000_000
NAME = "replay"
ASK_MODELS = ("SelfCritique", "UseSummarization")
"""Hooks that ask a model by themselves; a replay goes without them and takes their votes as they
were."""
_DEADLINE = "Deadline"
_FROM_OUTSIDE = (_DEADLINE, *ASK_MODELS)


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
        """Let that time pass at once."""
        self._elapsed += seconds
        self._now += timedelta(seconds=seconds)

    def show(self, at: datetime, elapsed: float) -> None:
        """Another time."""
        self._now, self._elapsed = at, elapsed


class Stored:
    """A stored execution, as the parts below look things up in it."""

    def __init__(
        self, final: AgentState, paused: Mapping[int, AgentState], began: AgentState
    ) -> None:
        self.final = final
        self.paused = paused
        """The states in which it waited for a person, by the number of their last step."""
        self.steps = [self._as_it_was(step) for step in final.steps]
        self.metadata: Mapping[int, Mapping[str, Any]] = {}
        self._said = _said_before(final.messages, self.steps, began)

    def _as_it_was(self, step: StepExecution) -> StepExecution:
        """An answer rewrites the step that asked; this is the step before that."""
        state = self.paused.get(step.number)
        return step if state is None else state.steps[step.number - 1]

    def step(self, number: int) -> StepExecution | None:
        """The step of that number, if it is stored."""
        return self.steps[number - 1] if 1 <= number <= len(self.steps) else None

    def call(self, number: int, call_id: str) -> ToolExecution | None:
        """What a call of a step came to."""
        step = self.step(number)
        ran = () if step is None else step.step.tool_executions
        return next((each for each in ran if each.call.id == call_id), None)

    def pending(self, number: int, call_id: str) -> Pending | None:
        """What a call of a step asked a person."""
        state = self.paused.get(number)
        asked = () if state is None else state.pending
        return next((each for each in asked if each.call_id == call_id), None)

    def said_before(self, number: int) -> Sequence[Message]:
        """What users said while it ran, seen by that step first."""
        return self._said.get(number, ())

    def elapsed(self, number: int) -> tuple[float, float]:
        """Seconds since the run was entered, when the step began and when it was decided on."""
        step = self.step(number)
        if step is not None:
            took, current = step.duration_seconds, _current(step.outcome)
            if current is not None:
                return max(0.0, current - took), current
            before = sum(each.duration_seconds for each in self.steps[: number - 1])
            return before, before + took
        last = self.elapsed(len(self.steps))[1] if self.steps else 0.0
        ended = _current(self.final.outcome) or last
        # What cut a step off came after it had begun; otherwise it was not begun at all.
        return (last if outside_signals(self.final.outcome) else ended), ended


def _current(outcome: ContinuationOutcome | None) -> float | None:
    """How long the run had taken by the vote on its time, if there was one."""
    vote = None if outcome is None else outcome.evaluation_for("ExecutionTimeLimit")
    current = None if vote is None else vote.context.get("current")
    return float(current) if isinstance(current, int | float) else None


def _said_before(
    messages: Iterable[Message], steps: Sequence[StepExecution], began: AgentState
) -> dict[int, list[Message]]:
    known = {message.id for message in began.messages}
    first = {step.step.messages[0].id: step.number for step in steps if step.step.messages}
    said: dict[int, list[Message]] = {}
    waiting: list[Message] = []
    for message in messages:
        if message.is_user() and message.id not in known:
            waiting.append(message)
        elif message.id in first and waiting:
            said[first[message.id]], waiting = waiting, []
    return said


class StoredModel:
    """Says what the model said in each step; whatever else asks it gets no answer."""

    def __init__(self, stored: Stored, clock: ReplayClock, name: str) -> None:
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
        if signals := outside_signals(final.outcome):
            self._clock.show(final.updated_at, self._stored.elapsed(len(final.steps) + 1)[1])
            return signals[0]
        self.has_run_out = True
        return StopSignal(
            reason=StopReason.STOP_REQUESTED, source=NAME, message="nothing more is stored"
        )


class StoredDriver:
    """Gives the stored steps, for an agent with a driver of its own."""

    def __init__(self, stored: Stored, model: StoredModel) -> None:
        self._stored = stored
        self._model = model

    async def use_tools(self, state: AgentState) -> AgentState:
        """The step as it was."""
        stored = self._stored.step(state.step_number)
        if stored is None:
            self._model.has_run_out = True
            raise AgentStop("nothing more is stored", source=NAME)
        return state.with_current_step(stored.step)


class ReplayLedger:
    """Answers every call with what it came to; no tool runs."""

    def __init__(self, stored: Stored) -> None:
        self.tools = Tools()
        self.unknown: list[str] = []
        """Calls that were not made then."""
        self._stored = stored

    async def begin(self, entry: LedgerEntry, /) -> Finished | None:
        """What the call came to."""
        return self._finished(entry.state.step_number, entry.call)

    async def end(self, entry: LedgerEntry, finished: Finished, /) -> None:
        """Nothing is noted: nothing ran."""

    def settled(self, context: HookContext) -> HookContext | None:
        """A call whose secret arguments are not stored could not be prepared again."""
        call = context.call
        if call is None or not what_is_hidden(call, self.tools.secret_arguments(call.name)):
            return None
        return context.with_result(as_result(self._finished(context.state.step_number, call)))

    def _finished(self, number: int, call: ToolCall) -> Finished:
        ran = self._stored.call(number, call.id)
        if ran is None:
            self.unknown.append(f"{call.name} is called in step {number}, and was not then")
            unknown = blank(call, self._stored.final.updated_at)
            return Finished(execution=replace(unknown, outcome=ToolOutcome.UNKNOWN, text=NAME))
        step = self._stored.step(number)
        signal = None if step is None else _signal_of_call(step.outcome, ran)
        waits_for = self._stored.pending(number, call.id)
        metadata = self._stored.metadata.get(number, {})
        return Finished(execution=ran, signal=signal, waits_for=waits_for, metadata=metadata)


def replay_hooks(
    stored: Stored, clock: ReplayClock, model: StoredModel, ledger: ReplayLedger
) -> tuple[Hook, ...]:
    """What an agent is given to be replayed."""

    def started(context: HookContext) -> None:
        show_start(stored, clock, context.state.step_number)

    def stepped(context: HookContext) -> HookContext | None:
        said = stored.said_before(context.state.step_number)
        return context.with_state(context.state.with_message(*said)) if said else None

    def ended(context: HookContext) -> HookContext | None:
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
        for vote in step.outcome.evaluations:
            if vote.criterion in ASK_MODELS and vote.decision is ContinuationDecision.REQUEST:
                wish = ContinueRequest(source=vote.criterion, message=vote.reason)
                state = state.with_continue_request(wish)
        clock.show(step.completed_at, stored.elapsed(number)[1])
        return context.with_state(state)

    return (
        make_hook(HookTrigger.BEFORE_EXECUTION, started, priority=LAST, name=NAME),
        make_hook(HookTrigger.BEFORE_STEP, stepped, priority=FIRST, name=NAME),
        make_hook(HookTrigger.BEFORE_INFERENCE, model.expect, priority=LAST, name=NAME),
        make_hook(HookTrigger.BEFORE_TOOL, ledger.settled, priority=FIRST, name=NAME),
        make_hook(HookTrigger.AFTER_STEP, ended, priority=LAST, name=NAME),
    )


def show_start(stored: Stored, clock: ReplayClock, number: int) -> None:
    """The time at which a step began."""
    step = stored.step(number)
    at = stored.final.updated_at if step is None else step.started_at
    clock.show(at, stored.elapsed(number)[0])


def outside_signals(outcome: ContinuationOutcome | None) -> list[StopSignal]:
    """The wishes to stop among the votes that came from nobody in the agent: a person's, the
    deadline's, and those of hooks that a replay goes without."""
    votes = () if outcome is None else outcome.evaluations
    return [_signal(vote) for vote in votes if _is_from_outside(vote)]


def _is_from_outside(vote: ContinuationEvaluation) -> bool:
    if vote.criterion == _DEADLINE:  # one that left a last step to wrap up says allow
        return True
    if vote.decision is not ContinuationDecision.FORBID or vote.stop_reason is None:
        return False
    return vote.criterion in _FROM_OUTSIDE or vote.stop_reason is StopReason.USER_REQUESTED


def _signal_of_call(outcome: ContinuationOutcome, ran: ToolExecution) -> StopSignal | None:
    """The wish to stop that a call came with: it waits for an answer, or ended the run."""
    for vote in outcome.evaluations:
        is_forbidden = vote.decision is ContinuationDecision.FORBID
        if not is_forbidden or vote.criterion != ran.call.name or _is_from_outside(vote):
            continue
        if vote.context.get("call_id") in (None, ran.call.id):
            return _signal(vote)
    return None


def _signal(vote: ContinuationEvaluation) -> StopSignal:
    default = StopReason.TIME_LIMIT if vote.criterion == _DEADLINE else StopReason.GUARD
    return StopSignal(
        reason=vote.stop_reason or default,
        message=vote.reason,
        context=vote.context,
        source=vote.criterion,
    )


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
