"""Stores a run's span in its state and links the span of a resumed run to it."""

from collections.abc import Mapping
from typing import Any, cast

from opentelemetry.trace import Link, Span, SpanContext, TraceFlags, format_span_id, format_trace_id

from stepwell.capabilities.telemetry import names
from stepwell.state import AgentState


def span_mark(span: Span, execution_id: str) -> dict[str, str] | None:
    """Return the ids of a span to store in a state; None if nothing is recorded."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return {
        "execution_id": execution_id,
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
    }


def link_to(state: AgentState, execution_id: str) -> Link | None:
    """Return a link to the span of the previous run if this run resumes the same execution."""
    stored: Any = state.metadata.get(names.TRACE_KEY)
    if not isinstance(stored, Mapping):
        return None
    mark = cast("Mapping[str, Any]", stored)
    if mark.get("execution_id") != execution_id:
        return None
    try:
        trace_id, span_id = int(str(mark.get("trace_id")), 16), int(str(mark.get("span_id")), 16)
    except ValueError:
        return None
    sampled = TraceFlags(TraceFlags.SAMPLED)
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=sampled)
    return Link(context) if context.is_valid else None  # an exporter would fail on invalid ids
