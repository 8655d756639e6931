"""The spans of a run's tool calls. Events report the start and the result of a call; its span lasts
as long as the call is awaited in between.
"""

from time import time_ns

from msgspec import Struct
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context

from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.content import attribute_text
from stepwell.capabilities.telemetry.instruments import Attributes, Instruments
from stepwell.events import ToolCallBlocked, ToolCallCompleted, ToolCallStarted
from stepwell.state import ToolOutcome

ERROR_TYPES = {
    ToolOutcome.RAISED: "raised",
    ToolOutcome.INVALID: "invalid_arguments",
    ToolOutcome.TIMED_OUT: "timeout",
}
"""The outcomes that are errors of a run, and their names if no exception is known."""


class _OpenCall(Struct, eq=False):
    span: Span
    started: int
    ended: int | None = None
    """When it was no longer awaited; None if it never was."""
    error: str | None = None


class ToolSpans:
    """Calls that started and have no result yet, by id."""

    def __init__(
        self,
        instruments: Instruments,
        parent: Context,
        metric_attributes: Attributes,
        shared: Attributes,
        *,
        records_content: bool,
    ) -> None:
        self._instruments = instruments
        self._parent = parent
        self._attributes = metric_attributes
        self._shared = shared
        self._records_content = records_content
        self._calls: dict[str, _OpenCall] = {}
        self.step_number = 0

    def on_start(self, event: ToolCallStarted) -> None:
        """Open the span of a call that is about to run or to be refused."""
        self._end_call(event.call_id)
        call = self._open_span(event.tool, event.call_id)
        if self._records_content:
            call.span.set_attribute(names.TOOL_ARGUMENTS, attribute_text(event.args))

    def context_of(self, call_id: str) -> Context | None:
        """Return the context in which the call runs."""
        call = self._calls.get(call_id)
        return None if call is None else set_span_in_context(call.span)

    def on_exit(self, call_id: str) -> None:
        """Record when the call is no longer awaited."""
        call = self._calls.get(call_id)
        if call is not None:
            call.ended = time_ns()

    def set_error(self, call_id: str, error: str) -> None:
        """Record the class of the call's error."""
        call = self._calls.get(call_id)
        if call is not None:
            call.error = error

    def on_complete(self, event: ToolCallCompleted) -> None:
        """Record the result of a call and end its span."""
        call = self._calls.get(event.call_id)
        if call is None:
            return
        fallback = ERROR_TYPES.get(ToolOutcome(event.outcome))
        kind = None if fallback is None else self._error_type(call, event.outcome, fallback)
        is_known = event.outcome != ToolOutcome.NOT_FOUND  # otherwise the model invented the name
        name = event.tool if is_known else names.OTHER
        metric_attributes: Attributes = {**self._attributes, names.TOOL_NAME: name}
        call.span.set_attribute(names.TOOL_OUTCOME, str(event.outcome))
        if kind is not None:
            metric_attributes[names.ERROR_TYPE] = kind
            call.span.set_attribute(names.ERROR_TYPE, kind)
            description = attribute_text(event.error) if self._records_content else None
            call.span.set_status(StatusCode.ERROR, description)
        if self._records_content:
            result = event.value if event.error is None else event.error
            call.span.set_attribute(names.TOOL_RESULT, attribute_text(result))
        seconds = None if call.ended is None else (call.ended - call.started) / 1e9
        self._instruments.record_tool_call(seconds, str(event.outcome), metric_attributes)
        self._end_call(event.call_id)

    def on_blocked(self, event: ToolCallBlocked) -> None:
        """Record a call that was refused and never starts."""
        self._end_call(event.call_id)
        call = self._open_span(event.tool, event.call_id)
        call.ended = call.started
        call.span.set_attribute(names.TOOL_OUTCOME, str(ToolOutcome.BLOCKED))
        if self._records_content:
            call.span.set_attribute(names.TOOL_ARGUMENTS, attribute_text(event.args))
            call.span.set_attribute(names.TOOL_RESULT, attribute_text(event.reason))
        metric_attributes = {**self._attributes, names.TOOL_NAME: event.tool}
        self._instruments.record_tool_call(None, str(ToolOutcome.BLOCKED), metric_attributes)
        self._end_call(event.call_id)

    def end_all(self) -> None:
        """End open spans of a run that was interrupted."""
        for call_id in tuple(self._calls):
            self._end_call(call_id)

    def _open_span(self, tool: str, call_id: str) -> _OpenCall:
        started = time_ns()
        span = self._instruments.tracer.start_span(
            f"{names.EXECUTE_TOOL} {tool}",
            context=self._parent,
            kind=SpanKind.INTERNAL,
            attributes={
                names.OPERATION: names.EXECUTE_TOOL,
                names.TOOL_NAME: tool,
                names.TOOL_TYPE: names.FUNCTION,
                names.TOOL_CALL_ID: call_id,
                **self._shared,
                names.STEP_NUMBER: self.step_number,
            },
            start_time=started,
        )
        call = self._calls[call_id] = _OpenCall(span, started)
        return call

    def _error_type(self, call: _OpenCall, outcome: str, fallback: str) -> str:
        is_named = outcome == ToolOutcome.RAISED and call.error is not None
        return call.error if is_named and call.error is not None else fallback

    def _end_call(self, call_id: str) -> None:
        call = self._calls.pop(call_id, None)
        if call is not None:
            call.span.end(call.ended)
