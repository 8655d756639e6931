"""What came of a tool call, put into the words and values of an execution. Only pure functions.

The executor calls them; each takes a blank execution that knows its call and its times.
"""

from collections.abc import Mapping
from datetime import datetime
from math import isfinite
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepwell.continuation import AgentStop, StopReason, StopSignal
from stepwell.errors import (
    ErrorType,
    InvalidToolArgumentsError,
    ModelError,
    ToolNotFoundError,
    describe,
    text_of,
)
from stepwell.messages import ToolCall, Usage
from stepwell.state import ErrorInfo, Pending, PendingKind, ToolExecution, ToolOutcome
from stepwell.tools.result_text import format_result, json_value
from stepwell.tools.tool import InputRequired, ToolFailure, ToolOutput


class Finished(Struct, frozen=True, kw_only=True, eq=False):
    """An execution, and what the call leads to beside its result."""

    execution: ToolExecution
    metadata: Mapping[str, Any] = {}
    waits_for: Pending | None = None
    signal: StopSignal | None = None
    failure: BaseException | None = None


def blank(call: ToolCall, at: datetime) -> ToolExecution:
    """An execution of which nothing is known yet but when it began."""
    return ToolExecution(
        call=call, outcome=ToolOutcome.COMPLETED, text="", started_at=at, completed_at=at
    )


def completed_result(execution: ToolExecution, value: Any) -> Finished:
    """The tool returned. Raises if the value cannot be shown."""
    match value:
        case ToolOutput():
            _refuse_odd(value)
            if isinstance(value.value, ToolFailure | InputRequired):  # one that was charged for
                finished = completed_result(execution, value.value)
                paid = replace(finished.execution, usage=value.usage, cost=value.cost)
                return replace(finished, execution=paid, metadata=json_value(value.metadata))
            plain, text = format_result(value.value)
            done = replace(execution, text=text, value=plain, usage=value.usage, cost=value.cost)
            return Finished(execution=done, metadata=json_value(value.metadata))
        case ToolFailure():
            details, _ = format_result(value.details)
            failed = replace(
                execution,
                outcome=ToolOutcome.FAILED,
                text=f"Error: {value.message}",
                value=details or None,
            )
            return Finished(execution=failed)
        case InputRequired():
            return _make_question(execution, value)
        case _:
            plain, text = format_result(value)
            return Finished(execution=replace(execution, text=text, value=plain))


def _refuse_odd(output: ToolOutput) -> None:
    """What flows into the state must be what it says it is; this runs where faults are results."""
    wanted = {"metadata": Mapping, "usage": Usage, "cost": int | float}
    named = {"metadata": "mapping", "usage": "Usage", "cost": "number"}
    for field, kind in wanted.items():
        value = getattr(output, field)
        if not isinstance(value, kind):
            raise TypeError(f"ToolOutput.{field} is a {type(value).__name__}, not a {named[field]}")
    if not isfinite(output.cost):
        raise ValueError(f"ToolOutput.cost is {output.cost}, not a finite number")


def raised_result(execution: ToolExecution, failure: BaseException) -> Finished:
    """The tool raised: a request to stop the run, bad arguments, or an error."""
    call = execution.call
    if isinstance(failure, AgentStop):
        signal = replace(failure.signal, source=failure.signal.source or call.name)
        ended = replace(execution, text=f"This call ended the run: {signal.words}")
        return Finished(execution=ended, signal=signal)
    if isinstance(failure, InvalidToolArgumentsError):
        outcome, default, text = ToolOutcome.INVALID, ErrorType.VALIDATION, text_of(failure)
    else:
        outcome, default = ToolOutcome.RAISED, ErrorType.TOOL
        text = f"tool {call.name!r} failed: {describe(failure)}"
    info = ErrorInfo.from_exception(failure, default, tool_name=call.name)
    failed = replace(execution, outcome=outcome, text=f"Error: {text}", error=info)
    if isinstance(failure, ModelError) and isinstance(failure.usage, Usage):
        failed = replace(failed, usage=failure.usage, cost=failure.cost)  # the tool asked a model
    return Finished(execution=failed, failure=failure)


def timed_out(execution: ToolExecution, seconds: float | None, abandoned: bool = False) -> Finished:
    """The tool's own timeout ended it, or it was abandoned because it ignored that."""
    name = execution.call.name
    message = f"timed out after {seconds or 0.0:g} seconds and was {_ended_how(abandoned)}"
    info = ErrorInfo(
        type=ErrorType.TIMEOUT, exception="TimeoutError", message=message, tool_name=name
    )
    text = f"Error: tool {name!r} {message}; what it had begun may still take effect"
    ended = replace(execution, outcome=ToolOutcome.TIMED_OUT, text=text, error=info)
    return Finished(execution=ended, failure=TimeoutError(message))


def interrupted_result(
    execution: ToolExecution,
    signal: StopSignal,
    came_to: Finished | None = None,
    abandoned: bool = False,
) -> Finished:
    """The run's deadline or a cancellation ended the tool; its reported usage counts."""
    interrupted = signal.while_running(f"tool {execution.call.name}")
    how = f"{'was ' if abandoned else ''}{_ended_how(abandoned)}"
    text = f"{how} while it ran ({signal.words}); what it had begun may still take effect"
    ended = replace(execution, outcome=ToolOutcome.CANCELLED, text=f"Error: {text}")
    if came_to is not None:
        ended = replace(ended, usage=came_to.execution.usage, cost=came_to.execution.cost)
    return Finished(execution=ended, signal=interrupted)


def _ended_how(abandoned: bool) -> str:
    return "abandoned, since it ignored its cancellation" if abandoned else "cancelled"


def refused_result(execution: ToolExecution, outcome: ToolOutcome, why: str) -> Finished:
    """The call was not run at all: unknown, blocked, or the run stops."""
    return Finished(execution=replace(execution, outcome=outcome, text=f"Error: {why}"))


def refused_for(call: ToolCall, problem: Exception | ToolFailure, at: datetime) -> Finished:
    """The call can't run because of this problem."""
    unstarted = blank(call, at)
    if isinstance(problem, ToolNotFoundError):
        return refused_result(unstarted, ToolOutcome.NOT_FOUND, str(problem))
    if isinstance(problem, ToolFailure):
        return completed_result(unstarted, problem)
    return raised_result(unstarted, problem)


def blocked_result(call: ToolCall, reason: str, at: datetime) -> Finished:
    """A hook or a person refused the call."""
    return refused_result(blank(call, at), ToolOutcome.BLOCKED, f"Blocked: {reason}")


def not_run(call: ToolCall, why_halted: str, at: datetime) -> Finished:
    """The run stops before the call began."""
    why = f"Not run, because the run stops: {why_halted}"
    return refused_result(blank(call, at), ToolOutcome.NOT_RUN, why)


def substituted_result(call: ToolCall, value: Any, at: datetime) -> Finished:
    """A hook gave a result instead of the tool."""
    untouched = blank(call, at)
    try:
        return completed_result(untouched, value)
    except Exception as error:  # noqa: BLE001 - a value that can't be shown is a failed result
        return raised_result(untouched, error)


def _make_question(execution: ToolExecution, asked: InputRequired) -> Finished:
    call = execution.call
    return Finished(
        execution=replace(execution, outcome=ToolOutcome.PENDING, text="Waiting for an answer."),
        waits_for=Pending(
            kind=PendingKind(asked.kind),
            prompt=asked.prompt,
            call_id=call.id,
            tool_name=call.name,
            details=json_value(asked.details),
            resumes=asked.resumes,
            kept=asked.kept,
        ),
        signal=StopSignal(
            reason=StopReason.INPUT_REQUIRED,
            message=asked.prompt,
            source=call.name,
            context={"call_id": call.id},
        ),
    )


def in_place_of(finished: Finished, substitute: Finished) -> Finished:
    """A hook's result for a call that ran: its times and what it spent stay."""
    given, execution = substitute.execution, finished.execution
    shown = replace(
        given,
        started_at=execution.started_at,
        completed_at=execution.completed_at,
        duration_seconds=execution.duration_seconds,
        usage=execution.usage + given.usage,
        cost=execution.cost + given.cost,
    )
    signal = None if finished.waits_for is not None else finished.signal
    return replace(
        substitute,
        execution=shown,
        metadata={**finished.metadata, **substitute.metadata},
        signal=substitute.signal or signal,
    )
