"""What a tool call came to, and what a model answered, as JSON and back: for ledgers, which keep
both until the step that they belong to is stored.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, convert, json

from stepwell.continuation import StopSignal
from stepwell.errors import SerializationError
from stepwell.messages import ToolCall, Usage
from stepwell.models import ModelResponse
from stepwell.serialization.reader import VALUE_READER
from stepwell.serialization.values import Misfit
from stepwell.serialization.writer import VALUE_WRITER, write_pending
from stepwell.state import ErrorInfo, Pending, ToolExecution, ToolOutcome
from stepwell.tools.results import Finished


class _StoredCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    call: ToolCall
    outcome: ToolOutcome
    text: str
    started_at: datetime
    completed_at: datetime
    duration_seconds: float
    value: Any = None
    error: ErrorInfo | None = None
    usage: Usage = Usage()
    cost: float = 0.0
    metadata: Mapping[str, Any] = {}
    waits_for: Pending | None = None
    signal: StopSignal | None = None


def finished_to_json(finished: Finished) -> str:
    """What a call came to; raises ``SerializationError`` if JSON can't hold it."""
    ran = finished.execution
    try:
        stored = _StoredCall(
            call=ran.call,
            outcome=ran.outcome,
            text=ran.text,
            started_at=ran.started_at,
            completed_at=ran.completed_at,
            duration_seconds=ran.duration_seconds,
            value=VALUE_WRITER.write(ran.value),
            error=ran.error,
            usage=ran.usage,
            cost=ran.cost,
            metadata=VALUE_WRITER.write(finished.metadata),
            waits_for=None if finished.waits_for is None else write_pending(finished.waits_for),
            signal=finished.signal,
        )
        return json.encode(stored).decode()
    except Misfit as misfit:
        raise misfit.inside(f"the result of {ran.call.name!r}: ").error() from None
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"the result of {ran.call.name!r}: {error}") from None


def finished_from_json(text: str | bytes) -> Finished:
    """What ``finished_to_json`` wrote; of what a tool raised only the text is known."""
    try:
        stored = convert(VALUE_READER.read(json.decode(text)), _StoredCall)
    except Misfit as misfit:
        raise misfit.error() from None
    except ValueError as error:
        raise SerializationError(f"a stored tool result does not fit: {error}") from None
    ran = ToolExecution(
        call=stored.call,
        outcome=stored.outcome,
        text=stored.text,
        started_at=stored.started_at,
        completed_at=stored.completed_at,
        duration_seconds=stored.duration_seconds,
        value=stored.value,
        error=stored.error,
        usage=stored.usage,
        cost=stored.cost,
    )
    return Finished(
        execution=ran, metadata=stored.metadata, waits_for=stored.waits_for, signal=stored.signal
    )


def response_to_json(response: ModelResponse) -> str:
    """A model's whole answer; its secret arguments have to be hidden already."""
    try:
        return json.encode(response).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"a model's response can't be stored: {error}") from None


def response_from_json(text: str) -> ModelResponse:
    """What ``response_to_json`` wrote."""
    try:
        return json.decode(text, type=ModelResponse)
    except ValueError as error:
        raise SerializationError(f"a stored response does not fit: {error}") from None
