"""The tracer and the metrics of one agent. Imports OpenTelemetry, so it is loaded on first use."""

from collections.abc import Mapping

from opentelemetry.metrics import Histogram, Meter, MeterProvider, get_meter
from opentelemetry.trace import TracerProvider, get_tracer

from stepwell.capabilities.telemetry import names
from stepwell.messages import Usage

Attributes = dict[str, str | bool | int | float]


class Instruments:
    """Starts spans and records metrics. Without providers the global ones are used, even if they
    are set later."""

    def __init__(self, tracers: TracerProvider | None, meters: MeterProvider | None) -> None:
        self.tracer = get_tracer(names.SCOPE, tracer_provider=tracers)
        meter = get_meter(names.SCOPE, meter_provider=meters)
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BOUNDARIES,
        )
        self._operation = _duration_histogram(
            meter, names.OPERATION_DURATION, "GenAI operation duration.", names.OPERATION_BOUNDARIES
        )
        self._tool = _duration_histogram(
            meter,
            names.TOOL_DURATION,
            "The duration of a single tool execution.",
            names.OPERATION_BOUNDARIES,
        )
        self._agent = _duration_histogram(
            meter,
            names.AGENT_DURATION,
            "The duration of a single agent invocation.",
            names.AGENT_BOUNDARIES,
        )
        self._calls = meter.create_counter(
            names.TOOL_CALLS, unit="{call}", description="Tool calls by outcome."
        )
        self._steps = meter.create_counter(
            names.STEPS, unit="{step}", description="Steps taken by agents."
        )
        self._stops = meter.create_counter(
            names.STOPS, unit="{run}", description="Runs that record_run or paused, by stop reason."
        )

    def record_turn(self, seconds: float, usage: Usage | None, attributes: Attributes) -> None:
        """Record a model turn, successful or not."""
        self._operation.record(seconds, attributes)
        if usage:
            token_attributes = _without(attributes, names.ERROR_TYPE)
            self._tokens.record(
                usage.input_tokens, {**token_attributes, names.TOKEN_TYPE: names.INPUT}
            )
            self._tokens.record(
                usage.output_tokens, {**token_attributes, names.TOKEN_TYPE: names.OUTPUT}
            )

    def record_tool_call(self, seconds: float | None, outcome: str, attributes: Attributes) -> None:
        """Record a tool call; without ``seconds`` it did not run."""
        if seconds is not None:
            self._tool.record(seconds, attributes)
        without_error = _without(attributes, names.ERROR_TYPE)
        self._calls.add(1, {**without_error, names.TOOL_OUTCOME: outcome})

    def record_step(self, attributes: Attributes) -> None:
        """Count a step."""
        self._steps.add(1, attributes)

    def record_run(self, seconds: float, attributes: Attributes) -> None:
        """Record the duration of a run that ended or paused."""
        self._agent.record(seconds, attributes)

    def record_stop(self, reason: str, status: str, attributes: Attributes) -> None:
        """Count a run that ended or paused, by stop reason."""
        self._stops.add(1, {**attributes, names.STOP_REASON: reason, names.STATUS: status})


def _without(attributes: Mapping[str, str | bool | int | float], name: str) -> Attributes:
    return {key: value for key, value in attributes.items() if key != name}


def _duration_histogram(
    meter: Meter, name: str, description: str, boundaries: tuple[float, ...]
) -> Histogram:
    return meter.create_histogram(
        name, unit="s", description=description, explicit_bucket_boundaries_advisory=boundaries
    )
