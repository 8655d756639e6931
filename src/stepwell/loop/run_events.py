"""The loop's events. Payloads are only put together while somebody listens."""

from stepwell.continuation import AgentStatus, ContinuationOutcome, StopReason
from stepwell.errors import HookError
from stepwell.events import (
    AgentExecutionStarted,
    AgentFailed,
    AgentFinished,
    AgentStateUpdated,
    AgentStepCompleted,
    AgentStepStarted,
    ContinuationEvaluated,
    TokenUsageReported,
)
from stepwell.scope import RunScope
from stepwell.state import AgentState, AgentStep


def emit_execution_started(state: AgentState, scope: RunScope, tools: tuple[str, ...]) -> None:
    """An execution begins, or goes on."""
    scope.emitter.emit(
        AgentExecutionStarted,
        message_count=len(state.messages),
        available_tools=tools,
        resumed=bool(state.steps),
    )


def emit_step_started(state: AgentState, scope: RunScope, tools: tuple[str, ...]) -> None:
    """A step begins."""
    if scope.emitter.is_heard:
        scope.emitter.emit(
            AgentStepStarted,
            step_number=state.step_number,
            message_count=len(state.messages),
            available_tools=tools,
        )


def emit_step(state: AgentState, scope: RunScope, step: AgentStep, seconds: float) -> None:
    """A step is done, well or not."""
    if not scope.emitter.is_heard:
        return
    errors = step.errors
    scope.emitter.emit(
        AgentStepCompleted,
        step_number=state.step_count,
        has_tool_calls=step.has_tool_calls,
        error_count=len(errors),
        errors=tuple(error.text for error in errors),
        usage=step.usage,
        finish_reason=step.finish_reason,
        duration_ms=seconds * 1000,
    )
    if step.usage:
        scope.emitter.emit(
            TokenUsageReported, operation="step", usage=step.usage, total=state.usage
        )


def emit_decision(state: AgentState, scope: RunScope, outcome: ContinuationOutcome) -> None:
    """The votes of an iteration were counted and the state was recorded."""
    if scope.emitter.is_heard:
        scope.emitter.emit(
            ContinuationEvaluated,
            step_number=state.step_count,
            outcome=outcome,
            status=state.status,
        )
        scope.emitter.emit(AgentStateUpdated, status=state.status, step_count=state.step_count)


def emit_failure(
    state: AgentState, scope: RunScope, outcome: ContinuationOutcome, fault: Exception | None
) -> None:
    """The run failed: with the step's own error, or with what the deciding vote says."""
    if not scope.emitter.is_heard:
        return
    step, decisive = state.current_step, outcome.resolving_evaluation
    if decisive is None or decisive.criterion == "ErrorPolicyCriterion":
        error = None if step is None else step.most_urgent_error
        named, text = (error.exception, error.text) if error else ("", str(outcome.stop_reason))
    else:
        named, text = str(decisive.context.get("exception", "")), decisive.reason
    scope.emitter.emit(
        AgentFailed,
        status=state.status,
        steps_completed=state.step_count,
        exception_type=named,
        error=text,
        exception=fault.__cause__ if isinstance(fault, HookError) else fault,
    )


def emit_end(
    state: AgentState, scope: RunScope, outcome: ContinuationOutcome, seconds: float
) -> None:
    """The terminal event."""
    if not scope.emitter.is_heard:
        return
    scope.emitter.emit(
        AgentFinished,
        status=state.status,
        stop_reason=outcome.stop_reason,
        outcome=outcome,
        total_steps=state.step_count,
        total_usage=state.usage,
        duration_ms=seconds * 1000,
        final_response=state.final_response,
        waits_for=tuple(
            {
                "question_id": p.id,
                "kind": p.kind,
                "prompt": p.prompt,
                "call_id": p.call_id,
                "tool_name": p.tool_name,
            }
            for p in state.pending
        ),
    )


def emit_cut_off(state: AgentState, scope: RunScope) -> None:
    """The terminal event of a run whose surrounding task was cancelled; it has no decision."""
    scope.emitter.emit(
        AgentFinished,
        status=AgentStatus.CANCELLED,
        stop_reason=StopReason.USER_REQUESTED,
        outcome=None,
        total_steps=state.step_count,
        total_usage=state.usage,
        duration_ms=0.0,
    )
