"""The payload that each event becomes. Only pure functions; the projector says when."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from stepwell.continuation import AgentStatus, ContinuationOutcome, StopReason
from stepwell.events import (
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    AgentStepStarted,
    ContinuationEvaluated,
    InferenceRetryScheduled,
    StreamEventReceived,
    ThinkingReceived,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallProgressed,
    ToolCallStarted,
)
from stepwell.journal.config import ProjectionConfig
from stepwell.journal.envelope import (
    ContinuationPayload,
    StatusPayload,
    StepCompletedPayload,
    StepStartedPayload,
    StreamChunkPayload,
    ThinkingPayload,
    Tokens,
    ToolCompletedPayload,
    ToolProgressPayload,
    ToolStartedPayload,
    Vote,
    Waiting,
)
from stepwell.journal.executions import TrackedExecution
from stepwell.journal.status import BroadcastStatus
from stepwell.journal.summaries import args_summary, result_summary, truncated_args
from stepwell.messages import Usage
from stepwell.state import ToolOutcome

_CUT_OFF = "the task that it ran in was cancelled"


def step_started(run: TrackedExecution, event: AgentStepStarted) -> StepStartedPayload:
    """A step began."""
    return StepStartedPayload(
        **run.whose,
        step_number=event.step_number,
        message_count=event.message_count,
        available_tools=tuple(event.available_tools),
    )


def step_completed(run: TrackedExecution, event: AgentStepCompleted) -> StepCompletedPayload:
    """A step ended."""
    return StepCompletedPayload(
        **run.whose,
        step_number=event.step_number,
        has_tool_calls=event.has_tool_calls,
        errors=event.error_count,
        error_messages=tuple(event.errors),
        finish_reason=event.finish_reason,
        usage=Tokens.of(event.usage),
        duration_ms=_finite(event.duration_ms),
    )


def tool_started(
    run: TrackedExecution, event: ToolCallStarted | ToolCallBlocked, config: ProjectionConfig
) -> ToolStartedPayload:
    """A call started. Blocked calls have this payload too, so that their result has a place."""
    args = truncated_args(event.args, config.max_arg_length) if config.include_tool_args else None
    return ToolStartedPayload(
        **run.whose,
        step_number=event.step_number if isinstance(event, ToolCallStarted) else run.step_number,
        tool_name=event.tool,
        tool_call_id=event.call_id,
        args_summary=args_summary(event.args),
        args=args,
    )


def tool_completed(run: TrackedExecution, event: ToolCallCompleted) -> ToolCompletedPayload:
    """A call has its result."""
    return ToolCompletedPayload(
        **run.whose,
        tool_name=event.tool,
        tool_call_id=event.call_id,
        outcome=ToolOutcome(event.outcome),
        success=event.success,
        error=event.error,
        duration_ms=_finite(event.duration_ms),
        result_summary=result_summary(event.value, event.note),
        note=event.note or None,
    )


def tool_blocked(run: TrackedExecution, event: ToolCallBlocked) -> ToolCompletedPayload:
    """A call was refused; the text is the one that the model sees."""
    return ToolCompletedPayload(
        **run.whose,
        tool_name=event.tool,
        tool_call_id=event.call_id,
        outcome=ToolOutcome.BLOCKED,
        success=False,
        error=f"Error: Blocked: {event.reason}",
        duration_ms=0.0,
        result_summary=None,
    )


def tool_given_up(
    run: TrackedExecution, call: ToolCallStarted, at: datetime
) -> ToolCompletedPayload:
    """A call without a result, which will get none."""
    return ToolCompletedPayload(
        **run.whose,
        tool_name=call.tool,
        tool_call_id=call.call_id,
        outcome=ToolOutcome.CANCELLED,
        success=False,
        error="Error: the call was cut off; what it had begun may still take effect",
        duration_ms=(at - call.at) / timedelta(milliseconds=1),
        result_summary=None,
    )


def stream_chunk(run: TrackedExecution, event: StreamEventReceived) -> StreamChunkPayload:
    """A piece of text."""
    return StreamChunkPayload(
        **run.whose,
        step_number=event.step_number,
        content=event.content,
        is_complete=event.is_complete,
        chunk_index=event.chunk_index,
    )


def last_chunk(run: TrackedExecution, newest: StreamEventReceived) -> StreamChunkPayload:
    """The end of a response that broke off."""
    return StreamChunkPayload(
        **run.whose,
        step_number=newest.step_number,
        content="",
        is_complete=True,
        chunk_index=newest.chunk_index + 1,
    )


def thinking(run: TrackedExecution, event: ThinkingReceived) -> ThinkingPayload:
    """A piece of reasoning."""
    return ThinkingPayload(**run.whose, step_number=event.step_number, content=event.content)


def tool_progress(run: TrackedExecution, event: ToolCallProgressed) -> ToolProgressPayload:
    """How far a running call is."""
    return ToolProgressPayload(
        **run.whose, tool_call_id=event.call_id, message=event.message, fraction=event.fraction
    )


def continuation(run: TrackedExecution, event: ContinuationEvaluated) -> ContinuationPayload:
    """A decision with every vote."""
    outcome = event.outcome
    return ContinuationPayload(
        **run.whose,
        step_number=event.step_number,
        should_continue=outcome.should_continue,
        stop_reason=outcome.stop_reason,
        resolved_by=outcome.resolved_by,
        evaluations=tuple(
            Vote(criterion=vote.criterion, decision=vote.decision, reason=vote.reason)
            for vote in outcome.evaluations
        ),
    )


def status(
    run: TrackedExecution,
    status: BroadcastStatus,
    *,
    stop_reason: StopReason | None = None,
    reason: str | None = None,
    error: str | None = None,
    last_response: str | None = None,
    waits_for: tuple[Waiting, ...] = (),
    usage: Usage | None = None,
) -> StatusPayload:
    """The execution moves from the status it has to another."""
    return StatusPayload(
        **run.whose,
        status=status,
        previous_status=run.status,
        step_count=run.steps,
        stop_reason=stop_reason,
        reason=reason,
        error_message=error,
        last_response=last_response,
        waits_for=waits_for,
        usage=None if usage is None else Tokens.of(usage),
    )


def retry_text(event: InferenceRetryScheduled) -> str:
    """What people read while a model's provider is waited for."""
    return (
        f"waiting {event.delay_seconds:.1f} s for the model's provider, then attempt "
        f"{event.attempt} of {event.max_attempts}: {event.error}"
    )


def failed_status(run: TrackedExecution, event: AgentFailed) -> StatusPayload:
    """The execution failed; the decision before it has the reason."""
    outcome = run.outcome
    is_known = outcome is not None and outcome.stop_reason is not None
    return status(
        run,
        BroadcastStatus.FAILED,
        stop_reason=outcome.stop_reason if outcome and is_known else StopReason.ERROR,
        reason=_in_words(outcome, event.status) if is_known else event.error,
        error=event.error,
    )


def final_status(run: TrackedExecution, event: AgentFinished) -> StatusPayload:
    """The execution ended, or waits."""
    was_cut_off = event.outcome is None and event.status is AgentStatus.CANCELLED
    in_words = _CUT_OFF if was_cut_off else _in_words(event.outcome, event.status)
    reason = in_words or event.stop_reason
    is_failed = event.status is AgentStatus.FAILED
    return status(
        run,
        BroadcastStatus.of(event.status),
        stop_reason=event.stop_reason,
        reason=reason,
        error=reason if is_failed else None,
        last_response=event.final_response,
        waits_for=tuple(_waiting_for(asked) for asked in event.waits_for),
        usage=event.total_usage,
    )


def decided_status(run: TrackedExecution, event: ContinuationEvaluated) -> StatusPayload:
    """The execution ended, or waits, as far as its last decision says: for those who listen to no
    event of the end."""
    outcome = event.outcome
    word = event.status or outcome.status
    reason = _in_words(outcome, word)
    return status(
        run,
        BroadcastStatus.of(word),
        stop_reason=outcome.stop_reason,
        reason=reason,
        error=reason if word is AgentStatus.FAILED else None,
    )


def left_behind(run: TrackedExecution, *, cancelled: bool) -> StatusPayload:
    """A subagent without an end event whose parent is over."""
    return status(
        run,
        BroadcastStatus.CANCELLED if cancelled else BroadcastStatus.STOPPED,
        stop_reason=StopReason.USER_REQUESTED if cancelled else StopReason.STOP_REQUESTED,
        reason="what it was spawned for ended before it did",
    )


def left_by_reset(run: TrackedExecution) -> StatusPayload:
    """Nobody follows the execution any more, whatever becomes of it."""
    return status(
        run,
        BroadcastStatus.STOPPED,
        stop_reason=StopReason.STOP_REQUESTED,
        reason="it was no longer broadcast: the adapter was reset before its end",
    )


def _in_words(outcome: ContinuationOutcome | None, status: AgentStatus) -> str | None:
    if outcome is None:
        return None
    decisive = outcome.resolving_evaluation
    return outcome.explain(status).splitlines()[0] if decisive is None else decisive.reason


def _waiting_for(asked: Mapping[str, Any]) -> Waiting:
    return Waiting(
        question_id=str(asked.get("question_id", "")),
        kind=str(asked.get("kind", "")),
        prompt=str(asked.get("prompt", "")),
        call_id=asked.get("call_id"),
        tool_name=asked.get("tool_name"),
    )


def _finite(milliseconds: float) -> float:
    return milliseconds if math.isfinite(milliseconds) else 0.0
