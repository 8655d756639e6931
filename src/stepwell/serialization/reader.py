"""From what is stored back to a state. Strict: what does not fit together is an error."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, convert, json

from stepwell.errors import SerializationError
from stepwell.messages import History, Message, ToolCall
from stepwell.serialization.document import (
    StoredChange,
    StoredExecution,
    StoredState,
    StoredStep,
    StoredTool,
    result_texts,
)
from stepwell.serialization.values import ValueReader
from stepwell.serialization.writer import mark
from stepwell.state import (
    AgentState,
    AgentStep,
    Approval,
    ExecutionState,
    StepExecution,
    ToolExecution,
)


class StateBuilder:
    """A state being put together from a whole one and the changes that followed it."""

    def __init__(self, whole: StoredState) -> None:
        self._first = whole
        self._newest: StoredState | StoredChange = whole
        self._metadata = whole.metadata
        self._messages = whole.messages
        self._steps: list[StepExecution] = []
        self._add_steps(whole.steps)

    def apply(self, change: StoredChange) -> None:
        """Go on to the state that the change leads to."""
        self._check_follows(change)
        del self._messages[change.kept_messages :]
        del self._steps[change.kept_steps :]
        self._messages.extend(change.messages)
        self._add_steps(change.steps)
        for key in change.metadata_gone:
            self._metadata.pop(key, None)
        self._metadata.update(change.metadata)
        self._newest = change

    def state(self) -> AgentState:
        """The state reached."""
        first, newest = self._first, self._newest
        execution = newest.execution
        if execution is None and self._steps:
            raise SerializationError("there are steps, but no execution that they belong to")
        return AgentState(
            agent_id=first.agent_id,
            parent_agent_id=first.parent_agent_id,
            created_at=first.created_at,
            updated_at=newest.updated_at,
            messages=History[Message].of(self._messages),
            metadata=self._metadata,
            execution_count=newest.execution_count,
            cumulative_seconds=newest.cumulative_seconds,
            execution=None if execution is None else _execution(execution, self._steps),
        )

    def _check_follows(self, change: StoredChange) -> None:
        newest = self._newest
        execution = None if newest.execution is None else _execution(newest.execution, self._steps)
        reached = mark(
            newest.updated_at, self._metadata, self._messages, len(self._steps), execution
        )
        if change.since != reached or change.agent_id != self._first.agent_id:
            raise SerializationError(
                "it does not follow the state before it: an increment is missing or doubled, or "
                "they are out of order, or of another run"
            )
        if not 0 <= change.kept_messages <= len(self._messages):
            raise SerializationError("kept_messages counts more than there are")
        if not 0 <= change.kept_steps <= len(self._steps):
            raise SerializationError("kept_steps counts more than there are")

    def _add_steps(self, steps: Sequence[StoredStep]) -> None:
        messages = self._messages
        for stored in steps:
            self._steps.append(_step_execution(stored, messages))


def read_state(whole: StoredState) -> AgentState:
    """The state that was stored whole."""
    return StateBuilder(whole).state()


def _execution(stored: StoredExecution, steps: list[StepExecution]) -> ExecutionState:
    outcome = stored.outcome
    if outcome == "last step":
        if not steps:
            raise SerializationError(
                "execution.outcome is that of the last step, but there is none"
            )
        outcome = steps[-1].outcome
    return ExecutionState(
        id=stored.id,
        started_at=stored.started_at,
        status=stored.status,
        steps=History[StepExecution].of(steps),
        outcome=outcome,
        usage=stored.usage,
        cost=stored.cost,
        consecutive_failures=stored.consecutive_failures,
        total_failures=stored.total_failures,
        granted=stored.granted,
        pending=stored.pending,
        answered=stored.answered,
        wrapping_up=stored.wrapping_up,
        wants_output=stored.wants_output,
    )


def _step_execution(stored: StoredStep, conversation: Sequence[Message]) -> StepExecution:
    messages = stored.messages
    if stored.said is not None:
        start, count = stored.said
        messages = tuple(conversation[start : start + count])
        if start < 0 or count < 1 or len(messages) != count or stored.messages:
            raise _reference_error(stored, f"said names {count} messages from {start} on")
    step = AgentStep(
        messages=messages,
        tool_executions=_tools(stored, messages) if stored.tools else (),
        failures=stored.failures,
        usage=stored.usage,
        cost=stored.cost,
        finish_reason=stored.finish_reason,
        model=stored.model,
        metadata=stored.metadata,
        output=stored.output,
    )
    return StepExecution(
        number=stored.number,
        step=step,
        outcome=stored.outcome,
        started_at=stored.started_at,
        completed_at=stored.completed_at,
        duration_seconds=stored.duration_seconds,
    )


def _tools(stored: StoredStep, messages: tuple[Message, ...]) -> tuple[ToolExecution, ...]:
    calls, texts = messages[0].tool_calls if messages else (), result_texts(messages)
    return tuple([_tool(stored, it, calls, texts) for it in stored.tools])


def _tool(
    step: StoredStep, stored: StoredTool, calls: tuple[ToolCall, ...], texts: Mapping[str, str]
) -> ToolExecution:
    call = stored.call
    if isinstance(call, int):
        if not 0 <= call < len(calls):
            raise _reference_error(step, f"a tool execution names call {call} of its response")
        call = calls[call]
    text = stored.text
    if text is UNSET:
        if call.id not in texts:
            raise _reference_error(step, f"the result of call {call.id!r} is named")
        text = texts[call.id]
    return ToolExecution(
        call=call,
        outcome=stored.outcome,
        text=text,
        started_at=stored.started_at,
        completed_at=stored.completed_at,
        duration_seconds=stored.duration_seconds,
        value=_value(stored, text),
        error=stored.error,
        usage=stored.usage,
        cost=stored.cost,
    )


def _value(stored: StoredTool, text: str) -> Any:
    if stored.value_is_in_text:
        return json.decode(text)
    return text if stored.value is UNSET else stored.value


def _reference_error(step: StoredStep, named: str) -> SerializationError:
    return SerializationError(f"steps[{step.number - 1}]: {named}, which is not there")


def _nested_state(body: Any) -> AgentState:
    return read_state(convert(VALUE_READER.read(body), StoredState))


def _approval(body: Any) -> Approval:
    return convert(VALUE_READER.read(body), Approval)


VALUE_READER = ValueReader({"$state": _nested_state, "$approval": _approval})
