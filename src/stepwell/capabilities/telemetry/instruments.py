"""The tracer and the metrics of one agent. Imports OpenTelemetry; loaded when telemetry is used."""

from collections.abc import Mapping

from opentelemetry.metrics import Histogram, Meter, MeterProvider, get_meter
from opentelemetry.trace import TracerProvider, get_tracer

from stepwell.capabilities.telemetry import names
from stepwell.messages import Usage

Attributes = dict[str, str | bool | int | float]


class Instruments:
    """Where spans begin and numbers are counted. Without providers the global ones are asked, also
    when they are set later."""

    def __init__(self, tracers: TracerProvider | None, meters: MeterProvider | None) -> None:
        self.tracer = get_tracer(names.SCOPE, tracer_provider=tracers)
        meter = get_meter(names.SCOPE, meter_provider=meters)
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BOUNDARIES,
        )
        self._operation = _seconds(
            meter, names.OPERATION_DURATION, "GenAI operation duration.", names.OPERATION_BOUNDARIES
        )
        self._tool = _seconds(
            meter,
            names.TOOL_DURATION,
            "The duration of a single tool execution.",
            names.OPERATION_BOUNDARIES,
        )
        self._agent = _seconds(
            meter,
            names.AGENT_DURATION,
            "The duration of a single agent invocation.",
            names.AGENT_BOUNDARIES,
        )
        self._calls = meter.create_counter(
            names.TOOL_CALLS, unit="{call}", description="Tool calls by outcome."
        )
        self._steps = meter.create_counter(
            names.STEPS, unit="{step}", description="Steps that agents took."
        )
        self._stops = meter.create_counter(
            names.STOPS, unit="{run}", description="Runs that ended or paused, by stop reason."
        )

    def turned(self, seconds: float, usage: Usage | None, about: Attributes) -> None:
        """A model answered, or failed to."""
        self._operation.record(seconds, about)
        if usage:
            of_tokens = _without(about, names.ERROR_TYPE)
            self._tokens.record(usage.input_tokens, {**of_tokens, names.TOKEN_TYPE: names.INPUT})
            self._tokens.record(usage.output_tokens, {**of_tokens, names.TOKEN_TYPE: names.OUTPUT})

    def called(self, seconds: float | None, outcome: str, about: Attributes) -> None:
        """A tool call has its result; without seconds it was not run."""
        if seconds is not None:
            self._tool.record(seconds, about)
        without_error = _without(about, names.ERROR_TYPE)
        self._calls.add(1, {**without_error, names.TOOL_OUTCOME: outcome})

    def stepped(self, about: Attributes) -> None:
        """A step was taken."""
        self._steps.add(1, about)

    def ended(self, seconds: float, about: Attributes) -> None:
        """A run is over, for now or for good."""
        self._agent.record(seconds, about)

    def stopped(self, reason: str, status: str, about: Attributes) -> None:
        """A run came to its end, or pauses."""
        self._stops.add(1, {**about, names.STOP_REASON: reason, names.STATUS: status})


def _without(about: Mapping[str, str | bool | int | float], name: str) -> Attributes:
    return {key: value for key, value in about.items() if key != name}


def _seconds(meter: Meter, name: str, said: str, boundaries: tuple[float, ...]) -> Histogram:
    return meter.create_histogram(
        name, unit="s", description=said, explicit_bucket_boundaries_advisory=boundaries
    )
