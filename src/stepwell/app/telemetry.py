"""``[telemetry]``: OpenTelemetry for every agent of an application."""

from stepwell.agent import AgentPlan
from stepwell.app.config import TelemetryConfig
from stepwell.sessions.directory import AgentDirectory


def with_tracing(agents: AgentDirectory, config: TelemetryConfig) -> AgentDirectory:
    """Trace each agent under its name. Raises ``ConfigurationError`` without the package."""
    from stepwell.capabilities.telemetry import with_telemetry

    def with_spans(plan: AgentPlan, name: str) -> AgentPlan:
        return with_telemetry(plan, name, content=config.content)

    return agents.with_plans(with_spans)
