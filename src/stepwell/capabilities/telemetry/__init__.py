"""What an agent does, as OpenTelemetry spans and metrics: ``UseTelemetry``.

The ``opentelemetry-api`` package is an optional extra and loaded when the capability is made.
"""

from stepwell.capabilities.telemetry.capability import UseTelemetry, with_telemetry

__all__ = ["UseTelemetry", "with_telemetry"]
