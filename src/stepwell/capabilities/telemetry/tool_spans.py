"""The spans of a run's tool calls. A call's events say that it begins and what came of it; in
between it is awaited, and that is how long its span lasts.
"""

from time import time_ns

from msgspec import Struct
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context

from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.content import told_text
from stepwell.capabilities.telemetry.instruments import Attributes, Instruments
from stepwell.events import ToolCallBlocked, ToolCallCompleted, ToolCallStarted
from stepwell.state import ToolOutcome

ERROR_TYPES = {
    ToolOutcome.RAISED: "raised",
    ToolOutcome.INVALID: "invalid_arguments",
    ToolOutcome.TIMED_OUT: "timeout",
}
"""The outcomes that are errors of a run, and what they are called if no exception is known."""


class _Call(Struct, eq=False):
    span: Span
    started: int
    ended: int | None = None
    """When it was not awaited any more; None if it never was."""
    error: str | None = None


class ToolSpans:
    """Calls that began and have no result yet, by id."""

    def __init__(
        self,
        instruments: Instruments,
        parent: Context,
        about: Attributes,
        shared: Attributes,
        *,
        tells_content: bool,
    ) -> None:
        self._instruments = instruments
        self._parent = parent
        self._about = about
        self._shared = shared
        self._tells_content = tells_content
        self._calls: dict[str, _Call] = {}
        self.step_number = 0

    def begun(self, event: ToolCallStarted) -> None:
        """A call is about to run, or to be refused."""
        self._let_go_of(event.call_id)
        call = self._opened(event.tool, event.call_id)
        if self._tells_content:
            call.span.set_attribute(names.TOOL_ARGUMENTS, told_text(event.args))

    def context_of(self, call_id: str) -> Context | None:
        """In which the call runs."""
        call = self._calls.get(call_id)
        return None if call is None else set_span_in_context(call.span)

    def left(self, call_id: str) -> None:
        """The call is not awaited any more."""
        call = self._calls.get(call_id)
        if call is not None:
            call.ended = time_ns()

    def failed(self, call_id: str, error: str) -> None:
        """The class of what it raised."""
        call = self._calls.get(call_id)
        if call is not None:
            call.error = error

    def completed(self, event: ToolCallCompleted) -> None:
        """The call has its result."""
        call = self._calls.get(event.call_id)
        if call is None:
            return
        fallback = ERROR_TYPES.get(ToolOutcome(event.outcome))
        kind = None if fallback is None else self._error_type(call, event.outcome, fallback)
        is_known = event.outcome != ToolOutcome.NOT_FOUND  # else the model made the name up
        name = event.tool if is_known else names.OTHER
        about: Attributes = {**self._about, names.TOOL_NAME: name}
        call.span.set_attribute(names.TOOL_OUTCOME, str(event.outcome))
        if kind is not None:
            about[names.ERROR_TYPE] = kind
            call.span.set_attribute(names.ERROR_TYPE, kind)
            said = told_text(event.error) if self._tells_content else None
            call.span.set_status(StatusCode.ERROR, said)
        if self._tells_content:
            told = event.value if event.error is None else event.error
            call.span.set_attribute(names.TOOL_RESULT, told_text(told))
        seconds = None if call.ended is None else (call.ended - call.started) / 1e9
        self._instruments.called(seconds, str(event.outcome), about)
        self._let_go_of(event.call_id)

    def blocked(self, event: ToolCallBlocked) -> None:
        """The call was refused, and never begins."""
        self._let_go_of(event.call_id)
        call = self._opened(event.tool, event.call_id)
        call.ended = call.started
        call.span.set_attribute(names.TOOL_OUTCOME, str(ToolOutcome.BLOCKED))
        if self._tells_content:
            call.span.set_attribute(names.TOOL_ARGUMENTS, told_text(event.args))
            call.span.set_attribute(names.TOOL_RESULT, told_text(event.reason))
        about = {**self._about, names.TOOL_NAME: event.tool}
        self._instruments.called(None, str(ToolOutcome.BLOCKED), about)
        self._let_go_of(event.call_id)

    def let_go(self) -> None:
        """End what is left open: the run was cut off."""
        for call_id in tuple(self._calls):
            self._let_go_of(call_id)

    def _opened(self, tool: str, call_id: str) -> _Call:
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
        call = self._calls[call_id] = _Call(span, started)
        return call

    def _error_type(self, call: _Call, outcome: str, fallback: str) -> str:
        is_named = outcome == ToolOutcome.RAISED and call.error is not None
        return call.error if is_named and call.error is not None else fallback

    def _let_go_of(self, call_id: str) -> None:
        call = self._calls.pop(call_id, None)
        if call is not None:
            call.span.end(call.ended)
