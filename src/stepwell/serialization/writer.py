"""From a state to what is stored of it. Pure; the conversation is written once.

What can't be stored raises ``Misfit``; each level on its way up adds its part of the path.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from math import isfinite
from operator import is_
from typing import Any, cast

from msgspec import UNSET, json
from msgspec.structs import asdict, replace

from stepwell.continuation import ContinuationEvaluation, ContinuationOutcome
from stepwell.errors import SerializationError
from stepwell.messages import Message, ToolCall, Usage
from stepwell.secrets import HIDDEN
from stepwell.serialization.document import (
    StoredChange,
    StoredExecution,
    StoredState,
    StoredStep,
    StoredTool,
    result_texts,
)
from stepwell.serialization.frame import encode_body
from stepwell.serialization.values import Misfit, ValueWriter, is_flat
from stepwell.state import (
    AgentState,
    Answered,
    Approval,
    ErrorInfo,
    ExecutionState,
    Pending,
    StepExecution,
    ToolExecution,
)
from stepwell.state.given_state import state_of
from stepwell.tools.secret_arguments import Scrubber

NO_USAGE = Usage()
MARKED_MESSAGES = 8
"""How many messages a mark looks at."""

OVERLAP = 32
"""How far before an increment's first message its steps may begin and still point to theirs."""


def write_state(state: AgentState) -> StoredState:
    """All of a state."""
    execution = state.execution
    messages = list(state.messages)
    return StoredState(
        agent_id=state.agent_id,
        created_at=state.created_at,
        updated_at=state.updated_at,
        parent_agent_id=state.parent_agent_id,
        execution_count=state.execution_count,
        cumulative_seconds=_finite(state.cumulative_seconds, "cumulative_seconds"),
        execution=None if execution is None else _execution(execution),
        metadata=_mapping(state.metadata, "metadata"),
        messages=_messages(messages, 0),
        steps=_steps(() if execution is None else execution.steps, messages, 0),
    )


def write_change(before: AgentState, state: AgentState) -> StoredChange:
    """What a state has that an older one has not; costs what was added."""
    for name in ("agent_id", "parent_agent_id", "created_at"):
        one, other = getattr(before, name), getattr(state, name)
        if one != other:
            raise SerializationError(
                f"the {name} is {other}, and that of the older state {one}; an increment follows "
                "an older state of the same agent"
            )
    execution, older = state.execution, before.execution
    kept_messages = state.messages.shared_with(before.messages)
    kept_steps = 0
    if execution is not None and older is not None and execution.id == older.id:
        kept_steps = execution.steps.shared_with(older.steps)
    changed, gone = _metadata_change(before.metadata, state.metadata)
    nearby = max(0, kept_messages - OVERLAP)
    messages = state.messages[nearby:]
    return StoredChange(
        since=mark(
            before.updated_at, before.metadata, before.messages, len(before.steps), before.execution
        ),
        agent_id=state.agent_id,
        updated_at=state.updated_at,
        execution_count=state.execution_count,
        cumulative_seconds=_finite(state.cumulative_seconds, "cumulative_seconds"),
        execution=None if execution is None else _execution(execution),
        metadata=_mapping(changed, "metadata"),
        metadata_gone=gone,
        kept_messages=kept_messages,
        kept_steps=kept_steps,
        messages=_messages(messages[kept_messages - nearby :], kept_messages),
        steps=_steps(() if execution is None else execution.steps[kept_steps:], messages, nearby),
    )


def mark(
    updated_at: datetime,
    metadata: Mapping[str, Any],
    messages: Sequence[Message],
    step_count: int,
    execution: ExecutionState | None,
) -> str:
    """By which an increment knows the state that it follows: its newest part, as that is what one
    change after the other touches."""
    covered = (
        *(updated_at, len(messages), step_count),
        None if execution is None else _execution(execution),
        _mapping(metadata, "metadata"),
        _messages(messages[-MARKED_MESSAGES:], max(0, len(messages) - MARKED_MESSAGES)),
    )
    return sha256(encode_body(covered, order="sorted")).hexdigest()


def _metadata_change(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    if before is after:
        return {}, ()
    stays = [key for key in before if key in after]
    if [*stays, *(key for key in after if key not in before)] != list(after):
        return dict(after), tuple(before)  # the order is part of it
    changed = {
        key: value
        for key, value in after.items()
        if key not in before or not _same(before[key], value)
    }
    return changed, tuple(key for key in before if key not in after)


def _same(one: Any, other: Any) -> bool:
    """Equal as they are stored: 1, 1.0 and True are equal to Python, and different JSON."""
    return one is other or encode_body(VALUE_WRITER.write(one)) == encode_body(
        VALUE_WRITER.write(other)
    )


def _execution(execution: ExecutionState) -> StoredExecution:
    last, outcome = execution.steps.last, execution.outcome
    is_last = last is not None and last.outcome is outcome
    try:
        return StoredExecution(
            id=execution.id,
            started_at=execution.started_at,
            status=execution.status,
            outcome="last step" if is_last else outcome and _outcome(outcome),
            usage=execution.usage or NO_USAGE,
            cost=_finite(execution.cost, ".cost"),
            consecutive_failures=execution.consecutive_failures,
            total_failures=execution.total_failures,
            granted=execution.granted,
            pending=tuple([write_pending(it) for it in execution.pending]),
            answered=tuple([_answered_call(it) for it in execution.answered]),
            wrapping_up=execution.wrapping_up,
            wants_output=execution.wants_output,
        )
    except Misfit as misfit:
        raise misfit.inside("execution") from None


def write_pending(pending: Pending) -> Pending:
    """What is waited for, with JSON data inside."""
    return replace(
        pending,
        details=_mapping(pending.details, ".pending.details"),
        kept=_data(pending.kept, ".pending.kept"),
    )


def _answered_call(answered: Answered) -> Answered:
    return replace(
        answered,
        call=_call(answered.call),
        answer=_data(_hide_secrets(answered), ".answered.answer"),
        kept=_data(answered.kept, ".answered.kept"),
    )


def _hide_secrets(answered: Answered) -> Any:
    """An approval may give a call its secret arguments again. They are for the run that follows in
    this process, and are not stored: a call that is resumed without them says so."""
    answer, may_store = answered.answer, _storable_arguments(answered)
    if not isinstance(answer, Approval) or answer.arguments is None or may_store is None:
        return answer
    given = answer.arguments
    secret = frozenset(given) - set(may_store)
    # A person may have typed the secret into an open argument as well.
    scrub = Scrubber.for_call(ToolCall(id="", name="", arguments=given), secret)
    shown = {
        name: HIDDEN if name in secret else scrub.redact_kept(it) for name, it in given.items()
    }
    return replace(answer, arguments=shown)


def _storable_arguments(asked: Pending | Answered) -> tuple[str, ...] | None:
    """A subagent's question knows it; its call is the one that will be given the answer."""
    child = state_of(asked.kept)
    if child is None:
        return asked.may_store
    pending = () if child.execution is None else child.execution.pending
    own = next((it for it in pending if it.call_id is not None), None)
    return None if own is None else _storable_arguments(own)


def _messages(messages: Iterable[Message], first: int) -> list[Message]:
    stored: list[Message] = []
    for message in messages:
        try:
            stored.append(_message(message))
        except Misfit as misfit:
            raise misfit.inside(f"messages[{first + len(stored)}]") from None
    return stored


def _message(message: Message) -> Message:
    if message.metadata or type(message.metadata) is not dict:
        metadata = _mapping(message.metadata, ".metadata")
        if metadata is not message.metadata:
            message = replace(message, metadata=metadata)
    for part in message.parts:
        if type(part) is ToolCall and not is_flat(part.arguments):
            kept = _call(part)
            if kept is not part:
                parts = tuple([kept if it is part else it for it in message.parts])
                message = replace(message, parts=parts)
    return message


def _call(call: ToolCall) -> ToolCall:
    arguments = _mapping(call.arguments, ".arguments")
    return call if arguments is call.arguments else replace(call, arguments=arguments)


def _steps(
    steps: Iterable[StepExecution], messages: Sequence[Message], first: int
) -> list[StoredStep]:
    """``messages`` are those of the conversation from ``first`` on."""
    places = {id(message): place for place, message in enumerate(messages)}
    stored: list[StoredStep] = []
    for recorded in steps:
        try:
            stored.append(_step(recorded, messages, first, places))
        except Misfit as misfit:
            raise misfit.inside(f"steps[{recorded.number - 1}]") from None
    return stored


def _step(
    recorded: StepExecution, messages: Sequence[Message], first: int, places: Mapping[int, int]
) -> StoredStep:
    step = recorded.step
    own = step.messages
    place = places.get(id(own[0])) if own else None
    if place is not None:
        there = messages[place : place + len(own)]
        if len(there) != len(own) or not all(map(is_, there, own)):
            place = None
    return StoredStep(
        number=recorded.number,
        outcome=_outcome(recorded.outcome),
        started_at=recorded.started_at,
        completed_at=recorded.completed_at,
        duration_seconds=_finite(recorded.duration_seconds, ".duration_seconds"),
        said=None if place is None else (first + place, len(own)),
        messages=() if place is not None else tuple([_message(it) for it in own]),
        tools=_tools(step.tool_executions, own) if step.tool_executions else (),
        failures=_errors(step.failures),
        usage=step.usage or NO_USAGE,
        cost=_finite(step.cost, ".cost"),
        finish_reason=step.finish_reason,
        model=step.model,
        metadata=_mapping(step.metadata, ".metadata"),
        output=UNSET if step.output is UNSET else _data(step.output, ".output"),
    )


def _tools(
    executions: tuple[ToolExecution, ...], messages: tuple[Message, ...]
) -> tuple[StoredTool, ...]:
    calls, texts = messages[0].tool_calls if messages else (), result_texts(messages)
    return tuple(
        [_tool(execution, place, calls, texts) for place, execution in enumerate(executions)]
    )


def _tool(
    execution: ToolExecution, place: int, calls: tuple[ToolCall, ...], texts: Mapping[str, str]
) -> StoredTool:
    call, text, value = execution.call, execution.text, execution.value
    is_of_response = place < len(calls) and (
        calls[place] is call or encode_body(_call(calls[place])) == encode_body(_call(call))
    )
    is_text = value is text or (type(value) is str and value == text)
    is_in_text = not is_text and type(value) in (dict, list) and _is_read_from(text, value)
    return StoredTool(
        call=place if is_of_response else _call(call),
        outcome=execution.outcome,
        started_at=execution.started_at,
        completed_at=execution.completed_at,
        duration_seconds=_finite(execution.duration_seconds, ".tools.duration_seconds"),
        text=UNSET if texts.get(call.id) == text else text,
        value=UNSET if is_text or is_in_text else _data(value, f".tools[{place}].value"),
        value_is_in_text=is_in_text,
        error=None if execution.error is None else _errors((execution.error,))[0],
        usage=execution.usage or NO_USAGE,
        cost=_finite(execution.cost, ".tools.cost"),
    )


def _is_read_from(text: str, value: Any) -> bool:
    """Whether the text, read as JSON, is the value: results that are objects are shown so."""
    try:
        return json.encode(value) == text.encode() and json.decode(text) == value
    except (TypeError, ValueError, RecursionError):
        return False


def _errors(errors: tuple[ErrorInfo, ...]) -> tuple[ErrorInfo, ...]:
    for error in errors:
        _finite(error.retry_after or 0.0, ".retry_after")
    return errors


def _outcome(outcome: ContinuationOutcome) -> ContinuationOutcome:
    votes = [_vote(vote, place) for place, vote in enumerate(outcome.evaluations)]
    if all(map(is_, votes, outcome.evaluations)) and not outcome.delay_seconds:
        return outcome
    delay = _finite(outcome.delay_seconds, ".outcome.delay_seconds")
    return replace(outcome, evaluations=tuple(votes), delay_seconds=delay)


def _vote(vote: ContinuationEvaluation, place: int) -> ContinuationEvaluation:
    if is_flat(vote.context) and not vote.delay_seconds:
        return vote
    where = f".outcome.evaluations[{place}]"
    context = _mapping(vote.context, f"{where}.context")
    delay = _finite(vote.delay_seconds, f"{where}.delay_seconds")
    if context is vote.context and delay is vote.delay_seconds:
        return vote
    return replace(vote, context=context, delay_seconds=delay)


def _mapping(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What the state has for a mapping by name; other keys could not be loaded into it."""
    if not value and type(value) is dict:
        return cast("dict[str, Any]", value)
    for key in cast("Mapping[Any, Any]", value):
        if not isinstance(key, str):
            raise Misfit(f"has the key {key!r:.40}, which is not a text").inside(where)
    return _data(value, where)


def _data(value: Any, where: str) -> Any:
    try:
        return VALUE_WRITER.write(value)
    except Misfit as misfit:
        raise misfit.inside(where) from None


def _finite(number: float, where: str) -> float:
    if not isfinite(number):
        raise Misfit("is not a finite number, which JSON has no word for").inside(where)
    return float(number)


def _approval(approval: Approval) -> Any:
    return VALUE_WRITER.write(asdict(approval))


VALUE_WRITER = ValueWriter(
    {AgentState: ("$state", write_state), Approval: ("$approval", _approval)}
)
