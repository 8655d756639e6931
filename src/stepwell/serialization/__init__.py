"""States as JSON: the full format to resume from, and a slim one to show and ship."""

from stepwell.serialization.protocol import CanSerializeAgentState

__all__ = ["CanSerializeAgentState"]
