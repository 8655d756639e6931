"""Envelopes for user interfaces, and the transports that carry them."""

from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.broadcasting.envelope import BroadcastStatus, Envelope, EnvelopeType

__all__ = [
    "BroadcastConfig",
    "BroadcastStatus",
    "CanBroadcastAgentEvents",
    "Envelope",
    "EnvelopeType",
]
