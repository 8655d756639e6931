"""A step whose calls began and that was never stored, recorded in the state from what the ledger
knows of it: the model's turn, and for each call its result, that it was not run, or that its
outcome is unknown. For executions that end without running the step again.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from stepwell.continuation import ContinuationOutcome
from stepwell.drivers.react_decision import THOUGHT_ORIGIN, ReActDecision, read_decision
from stepwell.drivers.tool_calling import spent, step_messages, with_usable_ids
from stepwell.messages import Part, TextPart, ThinkingPart, ToolCall
from stepwell.models import ModelResponse
from stepwell.sessions.ledger.open_step import IntendedCall, KnownStep
from stepwell.sessions.ledger.recovery import outcome_unknown
from stepwell.state import AgentState, AgentStep, StepExecution, ToolOutcome
from stepwell.tools.results import Finished, blank, refused_result


def with_interrupted_step(
    state: AgentState,
    known: KnownStep,
    outcome: ContinuationOutcome,
    now: datetime,
    *,
    stopped: Collection[int] = (),
) -> AgentState:
    """Record the step that the ledger knows with that decision; return the same state if it knows
    none. ``stopped`` are the attempts whose worker was shut down."""
    response, begun = known.response, tuple(known.calls.values())
    if response is None and not begun:
        return state
    # Calls that ran again after an answer: their results take the placeholders' places.
    again = () if response is not None else _calls_run_again(state, begun)
    calls = again or _calls(state, response, begun)
    came_to = [_came_to(call, known.calls.get(call.id), now, stopped) for call in calls]
    executions = tuple([finished.execution for finished in came_to])
    said = response or ModelResponse()
    usage, cost = spent(said.usage, said.cost, executions)
    step = AgentStep(
        messages=() if again else step_messages(state, _parts(said, calls), executions),
        tool_executions=executions,
        usage=usage,
        cost=cost,
        finish_reason=said.finish_reason,
        model=said.model,
    )
    record = StepExecution(
        number=state.step_number,
        step=step,
        outcome=outcome,
        started_at=min([call.started_at for call in begun], default=now),
        completed_at=now,
        duration_seconds=0.0,
    )
    state = state.with_answers_used(executions) if again else state.with_message(*step.messages)
    for finished in came_to:
        state = state.with_metadata(finished.metadata) if finished.metadata else state
    return state.with_step_recorded(record)


def _calls_run_again(state: AgentState, begun: Sequence[IntendedCall]) -> tuple[ToolCall, ...]:
    """The calls of earlier steps that the interrupted step ran again, or was to."""
    earlier = {ran.call.id: ran.call for it in state.steps for ran in it.step.tool_executions}
    again = {it.call_id: earlier[it.call_id] for it in begun if it.call_id in earlier}
    return tuple({**{it.call.id: it.call for it in state.answered}, **again}.values())


def _calls(
    state: AgentState, response: ModelResponse | None, begun: Sequence[IntendedCall]
) -> tuple[ToolCall, ...]:
    """Those of the model's turn, and those that only the ledger knows: written as text, or made by
    a driver of its own."""
    made = with_usable_ids(() if response is None else response.tool_calls, state)
    decided = None if response is None else _decision(response).call
    ids = {call.id for call in made}
    others = [_call(it, decided) for it in begun if it.call_id not in ids]
    return (*made, *others)


def _call(begun: IntendedCall, decided: ToolCall | None) -> ToolCall:
    if begun.finished is not None:
        return begun.finished.execution.call
    if decided is not None and decided.name == begun.tool_name:
        return replace(decided, id=begun.call_id)
    return ToolCall(id=begun.call_id, name=begun.tool_name, arguments={})


def _decision(response: ModelResponse) -> ReActDecision:
    decision = read_decision(response.text) if not response.tool_calls else None
    return decision if isinstance(decision, ReActDecision) else ReActDecision()


def _came_to(
    call: ToolCall, known: IntendedCall | None, now: datetime, stopped: Collection[int]
) -> Finished:
    if known is None:
        why = "Not run, because the run ended before"
        return refused_result(blank(call, now), ToolOutcome.NOT_RUN, why)
    if known.finished is None:
        return outcome_unknown(call, known.started_at, now, was_stopped=known.attempt in stopped)
    if known.finished.waits_for is not None:
        why = "no answer was given, because the run ended"
        return refused_result(blank(call, now), ToolOutcome.NOT_RUN, why)
    return known.finished


def _parts(response: ModelResponse, calls: tuple[ToolCall, ...]) -> tuple[Part, ...]:
    """The message as a driver makes it: in the order in which the model gave its parts."""
    made, others = calls[: len(response.tool_calls)], calls[len(response.tool_calls) :]
    if response.parts:
        usable = iter(made)
        in_order = [next(usable) if isinstance(p, ToolCall) else p for p in response.parts]
        return (*in_order, *others)
    said: tuple[Part, ...] = (TextPart(response.text),) if response.text else ()
    if not response.tool_calls and (decision := _decision(response)).call is not None:
        thought = ThinkingPart(decision.thought, origin=THOUGHT_ORIGIN)
        said = (thought,) if decision.thought else ()
    return (*response.thinking, *said, *calls)
