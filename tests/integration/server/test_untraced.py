"""Where an SDK of OpenTelemetry is set up, requests are not traced by the server: what clients
write in addresses, tokens and search words among it, would stand in the spans."""

from collections.abc import Iterator

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.integration.server.serving import Served


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", provider)
    assert metrics.get_meter_provider() is provider
    yield reader
    provider.shutdown()


async def test_no_request_is_in_a_span_or_a_metric(
    served: Served, spans: InMemorySpanExporter, numbers: InMemoryMetricReader
) -> None:
    async with served.client() as ada:
        found = await ada.get("/agent/sessions", params={"search": "canary-31c7"})
        followed = await ada.get("/agent/sessions/x/events", params={"token": "canary-31c7"})
    assert (found.status_code, followed.status_code) == (200, 404)
    with trace.get_tracer("test").start_as_current_span("the provider works"):
        pass
    assert [span.name for span in spans.get_finished_spans()] == ["the provider works"]
    assert numbers.get_metrics_data() is None
