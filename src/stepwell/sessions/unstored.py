"""A step whose calls began and that was never stored, put into the state from what the ledger knows
of it: the model's turn, and for each call its result, that it was not run, or that nobody knows.
For executions that end without running the step again, so that whoever reads the state later knows.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from stepwell.continuation import ContinuationOutcome
from stepwell.drivers.react_decision import THOUGHT_ORIGIN, ReActDecision, read_decision
from stepwell.drivers.tool_calling import spent, step_messages, with_usable_ids
from stepwell.errors import SerializationError
from stepwell.messages import Part, TextPart, ThinkingPart, ToolCall
from stepwell.models import ModelResponse
from stepwell.serialization.calls import response_from_json
from stepwell.sessions.records import LedgerCall, LedgerTurn
from stepwell.sessions.recovery import KnownCall, outcome_unknown
from stepwell.state import AgentState, AgentStep, StepExecution, ToolOutcome
from stepwell.tools.results import Finished, blank, refused

Ledger = tuple[LedgerTurn | None, Sequence[LedgerCall]]
"""What the ledger has of one step."""


def with_unstored_step(
    state: AgentState,
    ledger: Ledger,
    outcome: ContinuationOutcome,
    now: datetime,
    *,
    stopped: Collection[int] = (),
) -> AgentState:
    """The state with the step that the ledger tells of, recorded with that decision; the same state
    if it tells of none. ``stopped`` are the attempts whose worker was shut down."""
    turn, rows = ledger
    if turn is None and not rows:
        return state
    response = _response(turn)
    # Calls that ran again after an answer: their results take the placeholders' places.
    again = () if response is not None else _made_before(state, rows)
    calls = again or _calls(state, response, rows)
    known = {row.call_id: row for row in rows}
    came_to = [_came_to(call, known.get(call.id), now, stopped) for call in calls]
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
        started_at=min([row.started_at for row in rows], default=now),
        completed_at=now,
        duration_seconds=0.0,
    )
    state = state.with_answers_used(executions) if again else state.with_message(*step.messages)
    for finished in came_to:
        state = state.with_metadata(finished.metadata) if finished.metadata else state
    return state.with_step_recorded(record)


def _response(turn: LedgerTurn | None) -> ModelResponse | None:
    try:
        return None if turn is None else response_from_json(turn.response)
    except SerializationError:  # the calls are known all the same
        return None


def _made_before(state: AgentState, rows: Sequence[LedgerCall]) -> tuple[ToolCall, ...]:
    """The calls of earlier steps that the unstored step ran again, or was to."""
    earlier = {ran.call.id: ran.call for it in state.steps for ran in it.step.tool_executions}
    begun = {row.call_id: earlier[row.call_id] for row in rows if row.call_id in earlier}
    return tuple({**{it.call.id: it.call for it in state.answered}, **begun}.values())


def _calls(
    state: AgentState, response: ModelResponse | None, rows: Sequence[LedgerCall]
) -> tuple[ToolCall, ...]:
    """Those of the model's turn, and those that only the ledger knows: written as text, or made by
    a driver of its own."""
    made = with_usable_ids(() if response is None else response.tool_calls, state)
    decided = None if response is None else _decision(response).call
    ids = {call.id for call in made}
    others = [_call(row, decided) for row in rows if row.call_id not in ids]
    return (*made, *others)


def _call(row: LedgerCall, decided: ToolCall | None) -> ToolCall:
    known = _known(row)
    if known.finished is not None:
        return known.finished.execution.call
    if decided is not None and decided.name == row.tool_name:
        return replace(decided, id=row.call_id)
    return ToolCall(id=row.call_id, name=row.tool_name, arguments={})


def _decision(response: ModelResponse) -> ReActDecision:
    decision = read_decision(response.text) if not response.tool_calls else None
    return decision if isinstance(decision, ReActDecision) else ReActDecision()


def _known(row: LedgerCall) -> KnownCall:
    try:
        return KnownCall.of(row)
    except SerializationError:
        return KnownCall.of(replace(row, result=None))


def _came_to(
    call: ToolCall, row: LedgerCall | None, now: datetime, stopped: Collection[int]
) -> Finished:
    if row is None:
        why = "Not run, because the run ended before"
        return refused(blank(call, now), ToolOutcome.NOT_RUN, why)
    known = _known(row)
    if known.finished is None:
        return outcome_unknown(call, known.started_at, now, was_stopped=known.attempt in stopped)
    if known.finished.waits_for is not None:
        why = "no answer was given, because the run ended"
        return refused(blank(call, now), ToolOutcome.NOT_RUN, why)
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
