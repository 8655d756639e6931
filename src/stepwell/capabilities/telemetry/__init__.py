"""OpenTelemetry spans and metrics of what an agent does: ``UseTelemetry``.

The ``opentelemetry-api`` package is an optional extra, loaded when the capability is created.
"""

from stepwell.capabilities.telemetry.capability import UseTelemetry, with_telemetry

__all__ = ["UseTelemetry", "with_telemetry"]
