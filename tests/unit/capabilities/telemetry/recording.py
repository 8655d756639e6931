"""Real spans and metrics in memory, for the tests of telemetry."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stepwell import UseTelemetry


class Opened(SpanProcessor):
    """Counts spans that began and did not end."""

    def __init__(self) -> None:
        self.open: set[str] = set()

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        self.open.add(f"{span.name} {span.context.span_id}")

    def on_end(self, span: ReadableSpan) -> None:
        assert span.context is not None
        self.open.remove(f"{span.name} {span.context.span_id}")


class Recorded:
    """Providers of an SDK, and what they were told."""

    def __init__(self) -> None:
        self.opened = Opened()
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(self.opened)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])
        self.tracer = self.tracers.get_tracer("of the test")

    def capability(self, *, content: bool = False, name: str | None = "helper") -> UseTelemetry:
        return UseTelemetry(content, self.tracers, self.meters, name=name)

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def told(self, name: str) -> Mapping[str, Any]:
        """The attributes of the only span of that name."""
        return dict(self.one(name).attributes or {})

    def parents(self) -> set[tuple[str, str | None]]:
        """Each span by name, with the name of its parent."""
        by_id = {span.context.span_id: span.name for span in self.spans if span.context}
        return {
            (span.name, by_id[span.parent.span_id] if span.parent else None) for span in self.spans
        }

    def everything(self) -> str:
        """All that an exporter would be given, as text."""
        texts = [span.to_json() for span in self.spans]
        data = self._reader.get_metrics_data()
        return "\n".join([*texts, "" if data is None else data.to_json()])

    def points(self, metric: str) -> list[tuple[dict[str, Any], Any]]:
        """Attributes and value (of histograms the sum) of a metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        found = [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
        ]
        return [
            (dict(p.attributes or {}), p.value if hasattr(p, "value") else p.sum) for p in found
        ]

    def boundaries(self, metric: str) -> list[float]:
        data = self._reader.get_metrics_data()
        assert data is not None
        return next(
            list(one.data.data_points[0].explicit_bounds)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
        )
