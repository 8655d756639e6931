"""The spans of one run: ``invoke_agent`` around it, ``chat`` and ``execute_tool`` inside.

A span is current only while its call is awaited, in the task that awaits it. So spans of tools and
HTTP clients are nested inside, and nothing leaks into the code that reads a stream.
"""

from contextvars import Token
from time import time_ns
from typing import Any

from msgspec import Struct
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.chat_span import ChatSpan, usage_attributes
from stepwell.capabilities.telemetry.content import attribute_text, input_messages, output_message
from stepwell.capabilities.telemetry.decisions import add_decision, add_votes
from stepwell.capabilities.telemetry.instruments import Attributes, Instruments
from stepwell.capabilities.telemetry.span_links import link_to, span_mark
from stepwell.capabilities.telemetry.tool_spans import ToolSpans
from stepwell.continuation import AgentStatus, ContinuationOutcome, StopReason
from stepwell.events import (
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    ContinuationEvaluated,
    Emitter,
    InferenceRetryScheduled,
    SubagentSpawning,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.ids import run_ids
from stepwell.messages import FinishReason, Message, ToolCall, Usage
from stepwell.models.model import ModelTurn
from stepwell.scope import Guard
from stepwell.state import AgentState, AgentStep


class _EnteredSpan(Struct, frozen=True, eq=False):
    """What is awaited, and the token to restore the previous context."""

    awaited: object
    token: Token[Context]


class RunTrace:
    """The trace of one run. A resumed run gets a new trace with a link to the old one."""

    def __init__(
        self,
        instruments: Instruments,
        state: AgentState,
        *,
        name: str | None,
        records_content: bool,
        child_names: dict[str, str],
    ) -> None:
        self.execution_id = "" if state.execution is None else state.execution.id
        self._instruments = instruments
        self._records_content = records_content
        self._child_names = child_names
        self._children: list[str] = []
        self._attributes: Attributes = {} if name is None else {names.AGENT_NAME: name}
        self._shared = {**self._attributes, **self._ids(state)}
        self._usage, self._steps = Usage(), 0
        self._error_type: str | None = None
        self._is_open = True
        link = link_to(state, self.execution_id)
        self._started = time_ns()
        self._span = instruments.tracer.start_span(
            names.INVOKE_AGENT if name is None else f"{names.INVOKE_AGENT} {name}",
            kind=SpanKind.INTERNAL,
            attributes={names.OPERATION: names.INVOKE_AGENT, **self._shared},
            links=None if link is None else [link],
            start_time=self._started,
        )
        self._context = set_span_in_context(self._span)
        self._turn: ChatSpan | None = None
        """A turn whose answer is recorded at the end of its step."""
        self._calls = ToolSpans(
            instruments,
            self._context,
            self._attributes,
            self._shared,
            records_content=records_content,
        )
        self.on_step_start(state)
        if records_content:
            self._record_task(state)

    def _ids(self, state: AgentState) -> Attributes:
        attributes: Attributes = {
            names.AGENT_ID: state.agent_id,
            names.EXECUTION_ID: self.execution_id,
        }
        ids = run_ids()
        if ids is not None:
            attributes[names.ATTEMPT] = ids.attempt
            if ids.session_id is not None:
                attributes[names.CONVERSATION_ID] = attributes[names.SESSION_ID] = ids.session_id
        return attributes

    def _record_task(self, state: AgentState) -> None:
        task = next((m for m in reversed(state.messages) if m.is_user()), None)
        if task is not None:
            self._span.set_attribute(names.INPUT_MESSAGES, input_messages([task]))

    def listen(self, emitter: Emitter) -> None:
        """Listen to the events of the run."""
        emitter.listen(ToolCallStarted, self._calls.on_start)
        emitter.listen(ToolCallCompleted, self._calls.on_complete)
        emitter.listen(ToolCallBlocked, self._calls.on_blocked)
        emitter.listen(SubagentSpawning, self._on_child)
        emitter.listen(InferenceRetryScheduled, self._on_retry)
        emitter.listen(AgentStepCompleted, self._on_step)
        emitter.listen(ContinuationEvaluated, self._on_decision)
        emitter.listen(AgentFailed, self._on_failure)
        emitter.listen(AgentFinished, self._on_finish)

    def mark(self) -> dict[str, str] | None:
        """Return what the state stores of this span, for the run that resumes it, or None."""
        return span_mark(self._span, self.execution_id)

    def enter(self, awaited: object) -> object:
        """Make the span of what is awaited current; hooks run in the span of the run."""
        context: Context | None = self._context
        if isinstance(awaited, ModelTurn):
            awaited = self._start_turn(awaited)
            context = awaited.context
        elif isinstance(awaited, ToolCall):
            context = self._calls.context_of(awaited.id)
        return _EnteredSpan(awaited, attach(context or self._context))

    def exit(self, entered: object, guard: Guard, error: BaseException | None) -> None:
        """Restore the previous span. A turn is over now; a tool call still gets its result."""
        if not isinstance(entered, _EnteredSpan):
            return
        detach(entered.token)
        awaited = entered.awaited
        if isinstance(awaited, ChatSpan):
            awaited.record_answer(guard, error)
            if awaited.is_of_step:  # of several models, it is known now which answered
                self._span.set_attribute(names.PROVIDER, awaited.provider)
            if awaited.waits_for_step:
                self._turn = awaited
            else:
                awaited.end()
        elif isinstance(awaited, ToolCall):
            self._calls.on_exit(awaited.id)

    def _start_turn(self, turn: ModelTurn) -> ChatSpan:
        """Start the span of a turn; a turn outside the step belongs to the hook or tool that
        asks."""
        if turn.is_of_step:
            self._end_turn()
        shared = {**self._shared, names.STEP_NUMBER: self._calls.step_number}
        chat = ChatSpan(
            self._instruments,
            turn,
            self._context if turn.is_of_step else None,
            shared,
            records_content=self._records_content,
        )
        if turn.is_of_step:
            self._span.set_attribute(names.PROVIDER, chat.provider)
            self._span.set_attribute(names.REQUEST_MODEL, chat.model)
        return chat

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()

    def on_step_start(self, state: AgentState) -> None:
        """Count turns and calls from now on to this step."""
        self._calls.step_number = state.step_number

    def record_tool_error(self, call_id: str, error: str) -> None:
        """Record the class of a tool's error."""
        self._calls.set_error(call_id, error)

    def on_step_end(self, step: AgentStep) -> None:
        """Record the model's answer as the step keeps it."""
        if self._turn is not None and step.response is not None:
            self._turn.record_output(step.response, step.finish_reason)
        self._end_turn()

    def end_without_steps(self, state: AgentState) -> None:
        """End the trace of a run that took no step."""
        outcome = state.outcome
        if outcome is not None:
            add_decision(self._span, outcome, state.step_count)
        self._end(state.status, outcome, None if outcome is None else outcome.stop_reason)

    def _on_child(self, event: SubagentSpawning) -> None:
        self._children.append(event.child_agent_id)
        self._child_names[event.child_agent_id] = event.name

    def _on_step(self, event: AgentStepCompleted) -> None:
        self._usage += event.usage
        self._steps += 1
        self._instruments.record_step(self._attributes)

    def _on_retry(self, event: InferenceRetryScheduled) -> None:
        attributes = {
            names.STEP_NUMBER: event.step_number,
            names.RETRY_ATTEMPT: event.attempt,
            names.RETRY_DELAY: event.delay_seconds,
            names.ERROR_TYPE: event.error_kind or names.OTHER,
        }
        self._span.add_event(names.RETRY_EVENT, attributes)

    def _on_decision(self, event: ContinuationEvaluated) -> None:
        add_decision(self._span, event.outcome, event.step_number)

    def _on_failure(self, event: AgentFailed) -> None:
        self._error_type = event.exception_type or None
        if self._records_content:
            self._span.set_status(StatusCode.ERROR, attribute_text(event.error))

    def _on_finish(self, event: AgentFinished) -> None:
        if self._records_content and event.final_response:
            answer = Message.assistant(event.final_response)
            output = output_message(answer, FinishReason.STOP)
            self._span.set_attribute(names.OUTPUT_MESSAGES, output)
        self._end(event.status, event.outcome, event.stop_reason)

    def close(self) -> None:
        """End open spans; a run abandoned midway has not reported its end."""
        self._end(AgentStatus.IN_PROGRESS, None, None)
        for child in self._children:
            self._child_names.pop(child, None)

    def _end(
        self,
        status: AgentStatus,
        outcome: ContinuationOutcome | None,
        reason: StopReason | None,
    ) -> None:
        self._end_turn()
        self._calls.end_all()
        if not self._is_open:
            return
        self._is_open = False
        end_time, metric_attributes = time_ns(), dict(self._attributes)
        attributes: dict[str, Any] = {names.STATUS: str(status), names.STEP_COUNT: self._steps}
        self._span.set_attributes({**attributes, **usage_attributes(self._usage)})
        if outcome is not None:
            add_votes(self._span, outcome, records_content=self._records_content)
        if reason is not None:
            self._span.set_attribute(names.STOP_REASON, str(reason))
            self._instruments.record_stop(str(reason), str(status), self._attributes)
        if status is AgentStatus.FAILED:
            kind = self._error_type or str(reason)
            metric_attributes[names.ERROR_TYPE] = kind
            self._span.set_attribute(names.ERROR_TYPE, kind)
            if not self._records_content:
                self._span.set_status(StatusCode.ERROR)
        self._span.end(end_time)
        self._instruments.record_run((end_time - self._started) / 1e9, metric_attributes)
