"""What turns a state into JSON-ready data and back."""

from collections.abc import Mapping
from typing import Any, Protocol

from stepwell.state import AgentState


class CanSerializeAgentState(Protocol):
    """A format for states: the full one to resume from, or a slim one to show and ship."""

    def serialize(self, state: AgentState, /) -> dict[str, Any]:
        """The state as JSON-ready data."""
        ...

    def deserialize(self, data: Mapping[str, Any], /) -> AgentState:
        """The state that the data tell of. Raises ``SerializationError`` for anything else."""
        ...
