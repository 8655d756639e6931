"""The spans of one run: ``invoke_agent`` around it, ``chat`` and ``execute_tool`` inside.

A span is current only while the call that it stands for is awaited, in the task that awaits it. So
what a tool or an HTTP client traces is inside, and nothing leaks into the code that reads a stream.
"""

from contextvars import Token
from time import time_ns
from typing import Any

from msgspec import Struct
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.chat_span import ChatSpan, of_usage
from stepwell.capabilities.telemetry.content import input_messages, output_message, told_text
from stepwell.capabilities.telemetry.decisions import tell_decision, tell_votes
from stepwell.capabilities.telemetry.instruments import Attributes, Instruments
from stepwell.capabilities.telemetry.marks import link_to, mark_of
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
from stepwell.models.turn import ModelTurn
from stepwell.scope import Guard
from stepwell.state import AgentState, AgentStep


class _Entered(Struct, frozen=True, eq=False):
    """What is awaited, and the way back to the context from before."""

    around: object
    token: Token[Context]


class RunTrace:
    """From the first step of a run to its end; a run that is resumed has a new one, with a link."""

    def __init__(
        self,
        instruments: Instruments,
        state: AgentState,
        *,
        name: str | None,
        tells_content: bool,
        child_names: dict[str, str],
    ) -> None:
        self.execution_id = "" if state.execution is None else state.execution.id
        self._instruments = instruments
        self._tells_content = tells_content
        self._child_names = child_names
        self._children: list[str] = []
        self._about: Attributes = {} if name is None else {names.AGENT_NAME: name}
        self._shared = {**self._about, **self._ids(state)}
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
        """A turn that waits for its step to say what may be told of it."""
        self._calls = ToolSpans(
            instruments, self._context, self._about, self._shared, tells_content=tells_content
        )
        self.step_begins(state)
        if tells_content:
            self._tell_task(state)

    def _ids(self, state: AgentState) -> Attributes:
        told: Attributes = {names.AGENT_ID: state.agent_id, names.EXECUTION_ID: self.execution_id}
        ids = run_ids()
        if ids is not None:
            told[names.ATTEMPT] = ids.attempt
            if ids.session_id is not None:
                told[names.CONVERSATION_ID] = told[names.SESSION_ID] = ids.session_id
        return told

    def _tell_task(self, state: AgentState) -> None:
        task = next((m for m in reversed(state.messages) if m.is_user()), None)
        if task is not None:
            self._span.set_attribute(names.INPUT_MESSAGES, input_messages([task]))

    def listen(self, emitter: Emitter) -> None:
        """Hear what the run tells."""
        emitter.listen(ToolCallStarted, self._calls.begun)
        emitter.listen(ToolCallCompleted, self._calls.completed)
        emitter.listen(ToolCallBlocked, self._calls.blocked)
        emitter.listen(SubagentSpawning, self._note_child)
        emitter.listen(InferenceRetryScheduled, self._note_retry)
        emitter.listen(AgentStepCompleted, self._note_step)
        emitter.listen(ContinuationEvaluated, self._note_decision)
        emitter.listen(AgentFailed, self._note_failure)
        emitter.listen(AgentFinished, self._finish)

    def mark(self) -> dict[str, str] | None:
        """What the state keeps of this span, for the run that resumes it; None if none is kept."""
        return mark_of(self._span, self.execution_id)

    # Around what is awaited

    def entered(self, around: object) -> object:
        """Make the span of what is awaited the current one; hooks run in that of the run."""
        context: Context | None = self._context
        if isinstance(around, ModelTurn):
            around = self._turn_begun(around)
            context = around.context
        elif isinstance(around, ToolCall):
            context = self._calls.context_of(around.id)
        return _Entered(around, attach(context or self._context))

    def left(self, entered: object, guard: Guard, error: BaseException | None) -> None:
        """Back to the span from before. A turn is over; a call still waits for its result."""
        if not isinstance(entered, _Entered):
            return
        detach(entered.token)
        around = entered.around
        if isinstance(around, ChatSpan):
            around.answered(guard, error)
            if around.is_of_step:  # of several models, who answered is known now
                self._span.set_attribute(names.PROVIDER, around.provider)
            if around.waits_for_step:
                self._turn = around
            else:
                around.end()
        elif isinstance(around, ToolCall):
            self._calls.left(around.id)

    def _turn_begun(self, turn: ModelTurn) -> ChatSpan:
        """A question apart belongs to whoever asks: a hook, or a tool."""
        if turn.is_of_step:
            self._let_go_of_turn()
        shared = {**self._shared, names.STEP_NUMBER: self._calls.step_number}
        chat = ChatSpan(
            self._instruments,
            turn,
            self._context if turn.is_of_step else None,
            shared,
            tells_content=self._tells_content,
        )
        if turn.is_of_step:
            self._span.set_attribute(names.PROVIDER, chat.provider)
            self._span.set_attribute(names.REQUEST_MODEL, chat.model)
        return chat

    def _let_go_of_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()

    # What only a state knows

    def step_begins(self, state: AgentState) -> None:
        """Turns and calls from here on are of this step."""
        self._calls.step_number = state.step_number

    def tool_failed(self, call_id: str, error: str) -> None:
        """The class of what a tool raised."""
        self._calls.failed(call_id, error)

    def step_ends(self, step: AgentStep) -> None:
        """What the model said, as it is kept."""
        if self._turn is not None and step.response is not None:
            self._turn.tell_output(step.response, step.finish_reason)
        self._let_go_of_turn()

    def ended_at_once(self, state: AgentState) -> None:
        """The run took no step at all."""
        outcome = state.outcome
        if outcome is not None:
            tell_decision(self._span, outcome, state.step_count)
        self._end(state.status, outcome, None if outcome is None else outcome.stop_reason)

    # What the run tells

    def _note_child(self, event: SubagentSpawning) -> None:
        self._children.append(event.child_agent_id)
        self._child_names[event.child_agent_id] = event.name

    def _note_step(self, event: AgentStepCompleted) -> None:
        self._usage += event.usage
        self._steps += 1
        self._instruments.stepped(self._about)

    def _note_retry(self, event: InferenceRetryScheduled) -> None:
        about = {
            names.STEP_NUMBER: event.step_number,
            names.RETRY_ATTEMPT: event.attempt,
            names.RETRY_DELAY: event.delay_seconds,
            names.ERROR_TYPE: event.error_kind or names.OTHER,
        }
        self._span.add_event(names.RETRY_EVENT, about)

    def _note_decision(self, event: ContinuationEvaluated) -> None:
        tell_decision(self._span, event.outcome, event.step_number)

    def _note_failure(self, event: AgentFailed) -> None:
        self._error_type = event.exception_type or None
        if self._tells_content:
            self._span.set_status(StatusCode.ERROR, told_text(event.error))

    def _finish(self, event: AgentFinished) -> None:
        if self._tells_content and event.final_response:
            said = Message.assistant(event.final_response)
            told = output_message(said, FinishReason.STOP)
            self._span.set_attribute(names.OUTPUT_MESSAGES, told)
        self._end(event.status, event.outcome, event.stop_reason)

    def closed(self) -> None:
        """The run is over. One that was left in the middle has told no end."""
        self._end(AgentStatus.IN_PROGRESS, None, None)
        for child in self._children:
            self._child_names.pop(child, None)

    def _end(
        self,
        status: AgentStatus,
        outcome: ContinuationOutcome | None,
        reason: StopReason | None,
    ) -> None:
        self._let_go_of_turn()
        self._calls.let_go()
        if not self._is_open:
            return
        self._is_open = False
        ended, about = time_ns(), dict(self._about)
        told: dict[str, Any] = {names.STATUS: str(status), names.STEP_COUNT: self._steps}
        self._span.set_attributes({**told, **of_usage(self._usage)})
        if outcome is not None:
            tell_votes(self._span, outcome, tells_content=self._tells_content)
        if reason is not None:
            self._span.set_attribute(names.STOP_REASON, str(reason))
            self._instruments.stopped(str(reason), str(status), self._about)
        if status is AgentStatus.FAILED:
            kind = self._error_type or str(reason)
            about[names.ERROR_TYPE] = kind
            self._span.set_attribute(names.ERROR_TYPE, kind)
            if not self._tells_content:
                self._span.set_status(StatusCode.ERROR)
        self._span.end(ended)
        self._instruments.ended((ended - self._started) / 1e9, about)
