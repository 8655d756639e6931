"""The events of a tool call. Payloads are only put together while somebody listens."""

from stepwell.events import Emitter, ToolCallBlocked, ToolCallCompleted, ToolCallStarted
from stepwell.messages import ToolCall
from stepwell.state import ToolExecution


def emit_started(call: ToolCall, emitter: Emitter, step_number: int) -> None:
    """A call begins; its secret arguments are hidden."""
    emitter.emit(
        ToolCallStarted,
        tool=call.name,
        args=call.arguments,
        call_id=call.id,
        step_number=step_number,
    )


def emit_blocked(call: ToolCall, emitter: Emitter, reason: str, note: str) -> None:
    """A call was refused; its secret arguments are hidden."""
    emitter.emit(
        ToolCallBlocked,
        tool=call.name,
        args=call.arguments,
        call_id=call.id,
        reason=reason + (f"\n\n{note}" if note else ""),
    )


def emit_completed(execution: ToolExecution, emitter: Emitter, note: str) -> None:
    """A call has its result."""
    if emitter.is_heard:
        emitter.emit(
            ToolCallCompleted,
            tool=execution.call.name,
            call_id=execution.call.id,
            outcome=execution.outcome,
            success=not execution.is_error,
            error=execution.text if execution.is_error else None,
            value=execution.value,
            started_at=execution.started_at,
            completed_at=execution.completed_at,
            duration_ms=execution.duration_seconds * 1000,
            note=note,
        )
