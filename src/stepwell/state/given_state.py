"""States in places where foreign code may put anything: what it raises, what a question keeps."""

from typing import Any, cast

from stepwell.state.agent_state import AgentState


def state_of(value: Any) -> AgentState | None:
    """The value if it is a state, else None."""
    return cast("AgentState", value) if isinstance(value, AgentState) else None
