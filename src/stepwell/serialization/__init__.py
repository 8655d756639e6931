"""States as JSON: the full format to resume from, and a slim one to show and ship."""

from stepwell.serialization.full import AgentStateSerializer
from stepwell.serialization.protocol import CanSerializeAgentState
from stepwell.serialization.slim import SlimAgentStateSerializer
from stepwell.serialization.slim_config import SlimSerializationConfig

__all__ = [
    "AgentStateSerializer",
    "CanSerializeAgentState",
    "SlimAgentStateSerializer",
    "SlimSerializationConfig",
]
