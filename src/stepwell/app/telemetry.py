"""``[telemetry]``: every agent of an application tells OpenTelemetry what it does."""

from stepwell.agent import AgentPlan
from stepwell.app.config import TelemetryConfig
from stepwell.sessions.directory import AgentDirectory


def traced(agents: AgentDirectory, config: TelemetryConfig) -> AgentDirectory:
    """The agents, each traced under its name; raises ``ConfigurationError`` without the package."""
    from stepwell.capabilities.telemetry import with_telemetry

    def with_spans(plan: AgentPlan, name: str) -> AgentPlan:
        return with_telemetry(plan, name, content=config.content)

    return agents.with_plans(with_spans)
