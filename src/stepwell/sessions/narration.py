"""What people read in a session about a run: one message per step, tool call, pause and end.

Ids follow from the execution, so that a step which runs again after a crash has its messages once.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import json
from msgspec.structs import replace

from stepwell.continuation import AgentStatus, ContinuationOutcome
from stepwell.events import (
    AgentEvent,
    AgentStepCompleted,
    AgentStepStarted,
    InferenceRetryScheduled,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.journal.payloads import retry_text
from stepwell.journal.status import ExecutionStatus
from stepwell.journal.summaries import args_summary, result_summary
from stepwell.messages import INCOMPLETE
from stepwell.sessions.ids import numbered_id
from stepwell.sessions.occurrence import Note
from stepwell.sessions.records import EventType, Execution, MessageRole, SessionMessage
from stepwell.sessions.views.hints import explain_stop, prompt_of
from stepwell.state import AgentState, StepExecution, ToolExecution, ToolOutcome
from stepwell.text import truncate

LONGEST_ERROR = 500
LONGEST_TEXT = 4_000
"""Of what the model said before its tool calls; the state has all of it."""
AGENT_ID = "agent_id"
"""The key in a subagent's metadata under which its row says whose envelopes are its own."""

END_EVENTS = {
    ExecutionStatus.COMPLETED: EventType.EXECUTION_COMPLETED,
    ExecutionStatus.STOPPED: EventType.EXECUTION_COMPLETED,
    ExecutionStatus.FAILED: EventType.EXECUTION_FAILED,
    ExecutionStatus.CANCELLED: EventType.EXECUTION_CANCELLED,
}
"""The event type of each end of an execution; the metadata has its exact status."""


class Narrator:
    """Says what happens in one execution."""

    def __init__(self, execution: Execution, step_number: int = 1) -> None:
        self._execution = execution
        self._step_number = step_number
        self._notes: dict[type[AgentEvent], Callable[[Any], Note]] = {
            AgentStepStarted: self._start_note,
            AgentStepCompleted: self._step,
            InferenceRetryScheduled: self._waits_for_provider,
            ToolCallStarted: self._call_note,
            ToolCallBlocked: self._refusal_note,
            ToolCallCompleted: self._result_note,
        }

    def note(
        self,
        type: EventType,
        content: str,
        at: datetime,
        *,
        parts: Sequence[object] = (),
        role: MessageRole = MessageRole.INFO,
        metadata: Mapping[str, Any] | None = None,
    ) -> Note:
        """A message; ``parts`` tell it apart from others of its type."""
        execution = self._execution
        message = SessionMessage(
            id=self._message_id(type, *parts),
            tenant_id=execution.tenant_id,
            session_id=execution.session_id or "",
            role=role,
            content=content,
            created_at=at,
            agent_execution_id=execution.id,
            metadata={"event_type": str(type), **(metadata or {})},
        )
        return Note(message, type)

    def _message_id(self, type: EventType, *parts: object) -> str:
        """Most parts begin with the number of a step."""
        step = parts[0] if parts and isinstance(parts[0], int) else 0
        return numbered_id(self._execution.id, step, type, *parts)

    def of_event(self, event: AgentEvent) -> Note | None:
        """Return the message for an event of the run itself; its subagents only show live."""
        tell = self._notes.get(type(event))
        return None if tell is None else tell(event)

    def _start_note(self, event: AgentStepStarted) -> Note:
        number = self._step_number = event.step_number
        return self.note(
            EventType.STEP_STARTED,
            f"Step {number}",
            event.at,
            parts=(number,),
            metadata={"step_number": number},
        )

    def _result_note(self, event: ToolCallCompleted) -> Note:
        outcome = ToolOutcome(event.outcome)
        text = _result(event.tool, outcome, event.duration_ms / 1000, event.error)
        result = _result_data(outcome, event.duration_ms, event.value, event.error, event.note)
        return self._came_to(event.tool, event.call_id, text, event.at, result)

    def came_to(self, ran: ToolExecution) -> Note:
        """A call has its result."""
        error = ran.text if ran.is_error else None
        text = _result(ran.call.name, ran.outcome, ran.duration_seconds, error)
        result = _result_data(ran.outcome, ran.duration_seconds * 1000, ran.value, error)
        return self._came_to(ran.call.name, ran.call.id, text, ran.completed_at, result)

    def more_of(self, recorded: StepExecution) -> tuple[str, Mapping[str, Any]] | None:
        """The message about a step that is stored now, and what its metadata says on top: what the
        model said before its tool calls. Secret arguments are hidden in the state already. None if
        it said nothing."""
        step = recorded.step
        if not step.text or not step.has_tool_calls:
            return None
        id = self._message_id(EventType.STEP_COMPLETED, recorded.number)
        return id, {"text": truncate(step.text, LONGEST_TEXT)}

    def pause_note(self, state: AgentState, at: datetime) -> Note:
        """What the execution waits for."""
        asked = list(pending_data(state))
        names = [entry["call_id"] or entry["kind"] for entry in asked]
        return self.note(
            EventType.EXECUTION_PAUSED,
            "\n".join(entry["prompt"] for entry in asked) or "Waiting.",
            at,
            parts=(state.step_count, *names),
            role=MessageRole.NOTIFICATION,
            metadata={"pending": asked},
        )

    def end_notes(self, state: AgentState, status: ExecutionStatus, at: datetime) -> list[Note]:
        """The answer, and why it ended if it is not simply done."""
        reason = None if state.stop is None else state.stop.stop_reason
        metadata = {"status": str(status), "stop_reason": reason and str(reason)}
        type, said = END_EVENTS[status], list[Note]()
        answer = answer_of(state)
        step = state.current_step
        is_cut = step is not None and step.is_incomplete
        has_answer = status is ExecutionStatus.STOPPED or is_cut
        if status is ExecutionStatus.COMPLETED or (answer and has_answer):
            text = answer or "(There is no answer.)"
            is_end = status is ExecutionStatus.COMPLETED
            kind = type if is_end else EventType.STEP_COMPLETED
            said.append(
                self.note(
                    kind,
                    text,
                    at,
                    parts=("answer",),
                    role=MessageRole.ASSISTANT,
                    metadata=metadata if is_end else {INCOMPLETE: True} if is_cut else {},
                )
            )
        if status is not ExecutionStatus.COMPLETED:
            said.append(self.end_note(status, explain_stop(state), at, metadata))
        return said

    def end_note(
        self, status: ExecutionStatus, text: str, at: datetime, metadata: Mapping[str, Any]
    ) -> Note:
        """The end of an execution that did not complete, in words for a person."""
        end_metadata = {"status": str(status), **metadata}
        role, attempt = MessageRole.NOTIFICATION, self._execution.attempt
        return self.note(
            END_EVENTS[status], text, at, parts=("end", attempt), role=role, metadata=end_metadata
        )

    def _step(self, event: AgentStepCompleted) -> Note:
        number, failed = event.step_number, event.error_count > 0
        text = f"Step {number} done in {_seconds(event.duration_ms / 1000)}"
        if failed:
            text = f"Step {number} failed: {truncate('; '.join(event.errors), LONGEST_ERROR)}"
        return self.note(
            EventType.STEP_COMPLETED,
            text,
            event.at,
            parts=(number,),
            role=MessageRole.NOTIFICATION if failed else MessageRole.INFO,
            metadata={"step_number": number, "duration_ms": round(event.duration_ms, 3)},
        )

    def _waits_for_provider(self, event: InferenceRetryScheduled) -> Note:
        text = retry_text(event)
        return self.note(
            EventType.STEP_STARTED,
            truncate(text[0].upper() + text[1:], LONGEST_ERROR),
            event.at,
            parts=(event.step_number, event.inference_id, "attempt", event.attempt),
            metadata={"step_number": event.step_number, "attempt": event.attempt},
        )

    def _call_note(self, event: ToolCallStarted) -> Note:
        tool, call_id, summary = event.tool, event.call_id, args_summary(event.args)
        return self.note(
            EventType.TOOL_CALLED,
            f"Calling {tool} ({summary})" if summary else f"Calling {tool}",
            event.at,
            parts=(self._step_number, call_id),
            metadata={
                "step_number": self._step_number,
                "tool": tool,
                "call_id": call_id,
                "args_summary": summary,
            },
        )

    def _refusal_note(self, event: ToolCallBlocked) -> Note:
        text = f"{event.tool} was not allowed: {truncate(event.reason, LONGEST_ERROR)}"
        error = f"Error: Blocked: {event.reason}"
        result = _result_data(ToolOutcome.BLOCKED, 0.0, None, error)
        return self._came_to(event.tool, event.call_id, text, event.at, result)

    def _came_to(
        self, tool: str, call_id: str, text: str, at: datetime, result: Mapping[str, Any]
    ) -> Note:
        return self.note(
            EventType.TOOL_COMPLETED,
            text,
            at,
            parts=(self._step_number, call_id),
            role=MessageRole.INFO if result["success"] else MessageRole.NOTIFICATION,
            metadata={
                "step_number": self._step_number,
                "tool": tool,
                "call_id": call_id,
                **result,
            },
        )


def pending_data(state: AgentState) -> tuple[dict[str, Any], ...]:
    """What a paused execution waits for, as its row and its clients have it."""
    return tuple(
        {
            "question_id": asked.id,
            "kind": str(asked.kind),
            "prompt": prompt_of(asked, state),
            "call_id": asked.call_id,
            "tool_name": asked.tool_name,
            "details": dict(asked.details),
        }
        for asked in state.pending
    )


def with_usage(row: Execution, state: AgentState) -> Execution:
    """The row with what its state has used so far."""
    usage = state.usage
    return replace(
        row,
        step_count=state.step_count,
        token_usage=usage.total_tokens,
        token_details={
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "total": usage.total_tokens,
            "cached": usage.cached_tokens,
            "reasoning": usage.reasoning_tokens,
        },
        cost=state.cost,
    )


def with_decision(row: Execution, outcome: ContinuationOutcome | None) -> Execution:
    """The row with the decision that ended or paused it, which explains the stop."""
    if outcome is None:
        return row
    reason = None if outcome.stop_reason is None else str(outcome.stop_reason)
    return replace(row, stop_reason=reason, decision=outcome.to_dict())


def output_of(state: AgentState) -> Any:
    """What the run was asked for, as JSON data."""
    execution = state.execution
    if execution is None or not execution.wants_output:
        return state.final_response
    step = execution.newest_step
    has_output = step is not None and execution.status is AgentStatus.COMPLETED
    return step.output if step is not None and has_output else None


def answer_of(state: AgentState) -> str | None:
    """The answer as people read it."""
    if state.final_response:
        return state.final_response
    output = output_of(state)
    return None if output is None else json.encode(output).decode()


def _result_data(
    outcome: ToolOutcome, duration_ms: float, value: Any, error: str | None, note: str = ""
) -> dict[str, Any]:
    """What a call came to, as its envelope says it."""
    return {
        **({} if error is None else {"error": truncate(error, LONGEST_ERROR)}),
        **({"note": note} if note else {}),
        "outcome": str(outcome),
        "success": outcome in (ToolOutcome.COMPLETED, ToolOutcome.PENDING),
        "duration_ms": round(duration_ms, 3),
        "result_summary": result_summary(value, note),
    }


def _result(tool: str, outcome: ToolOutcome, seconds: float, error: str | None) -> str:
    if outcome is ToolOutcome.PENDING:
        return f"{tool} waits for an answer"
    if error is None:
        return f"{tool} done in {_seconds(seconds)}"
    if outcome is ToolOutcome.UNKNOWN:
        return f"{tool}: whether it took effect is not known"
    return f"{tool} failed: {truncate(error.removeprefix('Error: '), LONGEST_ERROR)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"
