"""Envelopes for user interfaces, and the transports that carry them."""

from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.broadcasters.broadcast_error import BroadcastError
from stepwell.broadcasting.broadcasters.composite import CompositeBroadcaster
from stepwell.broadcasting.broadcasters.console import ConsoleBroadcaster
from stepwell.broadcasting.broadcasters.json_lines import (
    JsonLine,
    JsonLinesBroadcaster,
    read_json_lines,
)
from stepwell.broadcasting.broadcasters.pusher import PusherBroadcaster, channel_auth
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.broadcasters.redis_pubsub import RedisBroadcaster
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.broadcasting.delivery.delivery import Delivery
from stepwell.journal.envelope import Envelope, EnvelopeType
from stepwell.journal.schema import envelope_json_schema, envelope_typescript
from stepwell.journal.status import BroadcastStatus

__all__ = [
    "AgentEventEnvelopeAdapter",
    "BroadcastConfig",
    "BroadcastError",
    "BroadcastStatus",
    "CanBroadcastAgentEvents",
    "CompositeBroadcaster",
    "ConsoleBroadcaster",
    "Delivery",
    "Envelope",
    "EnvelopeType",
    "JsonLine",
    "JsonLinesBroadcaster",
    "PusherBroadcaster",
    "RecordingBroadcaster",
    "RedisBroadcaster",
    "channel_auth",
    "envelope_json_schema",
    "envelope_typescript",
    "read_json_lines",
]
