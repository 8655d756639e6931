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
from stepwell.errors import ErrorType, InvalidToolArgumentsError, ModelError, described, text_of
from stepwell.messages import ToolCall, Usage
from stepwell.state import ErrorInfo, Pending, PendingKind, ToolExecution, ToolOutcome
from stepwell.tools.formatting import json_value, shown
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


def completed(execution: ToolExecution, value: Any) -> Finished:
    """The tool returned. Raises if the value cannot be shown."""
    match value:
        case ToolOutput():
            _refuse_odd(value)
            if isinstance(value.value, ToolFailure | InputRequired):  # one that was charged for
                finished = completed(execution, value.value)
                paid = replace(finished.execution, usage=value.usage, cost=value.cost)
                return replace(finished, execution=paid, metadata=json_value(value.metadata))
            plain, text = shown(value.value)
            done = replace(execution, text=text, value=plain, usage=value.usage, cost=value.cost)
            return Finished(execution=done, metadata=json_value(value.metadata))
        case ToolFailure():
            details, _ = shown(value.details)
            failed = replace(
                execution,
                outcome=ToolOutcome.FAILED,
                text=f"Error: {value.message}",
                value=details or None,
            )
            return Finished(execution=failed)
        case InputRequired():
            return _waiting(execution, value)
        case _:
            plain, text = shown(value)
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


def raised(execution: ToolExecution, failure: BaseException) -> Finished:
    """The tool raised: a wish to stop the run, bad arguments, or an error."""
    call = execution.call
    if isinstance(failure, AgentStop):
        signal = replace(failure.signal, source=failure.signal.source or call.name)
        ended = replace(execution, text=f"This call ended the run: {signal.words}")
        return Finished(execution=ended, signal=signal)
    if isinstance(failure, InvalidToolArgumentsError):
        outcome, default, text = ToolOutcome.INVALID, ErrorType.VALIDATION, text_of(failure)
    else:
        outcome, default = ToolOutcome.RAISED, ErrorType.TOOL
        text = f"tool {call.name!r} failed: {described(failure)}"
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


def interrupted(
    execution: ToolExecution,
    signal: StopSignal,
    came_to: Finished | None = None,
    abandoned: bool = False,
) -> Finished:
    """The run's deadline or a cancellation ended the tool; what it still told it spent counts."""
    told = signal.while_running(f"tool {execution.call.name}")
    how = f"{'was ' if abandoned else ''}{_ended_how(abandoned)}"
    text = f"{how} while it ran ({signal.words}); what it had begun may still take effect"
    ended = replace(execution, outcome=ToolOutcome.CANCELLED, text=f"Error: {text}")
    if came_to is not None:
        ended = replace(ended, usage=came_to.execution.usage, cost=came_to.execution.cost)
    return Finished(execution=ended, signal=told)


def _ended_how(abandoned: bool) -> str:
    return "abandoned, since it ignored its cancellation" if abandoned else "cancelled"


def refused(execution: ToolExecution, outcome: ToolOutcome, why: str) -> Finished:
    """The call was not run at all: unknown, blocked, or the run stops."""
    return Finished(execution=replace(execution, outcome=outcome, text=f"Error: {why}"))


def _waiting(execution: ToolExecution, asked: InputRequired) -> Finished:
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
    wish = None if finished.waits_for is not None else finished.signal
    return replace(
        substitute,
        execution=shown,
        metadata={**finished.metadata, **substitute.metadata},
        signal=substitute.signal or wish,
    )
