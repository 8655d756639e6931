"""Keeps envelopes in memory, for tests and to inspect a run afterwards."""

from collections.abc import Mapping
from typing import Any

from stepwell.journal.envelope import EnvelopeType


class RecordingBroadcaster:
    """Records every envelope and its channel, in order.

    >>> recorder = RecordingBroadcaster()
    >>> recorder.broadcast("agent.42", {"type": "agent.status", "payload": {"status": "idle"}})
    >>> [envelope["payload"]["status"] for envelope in recorder.of_type("agent.status")]
    ['idle']
    """

    def __init__(self) -> None:
        self._received: list[tuple[str, Mapping[str, Any]]] = []

    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        """Record an envelope."""
        self._received.append((channel, envelope))

    @property
    def envelopes(self) -> tuple[Mapping[str, Any], ...]:
        """All envelopes, oldest first."""
        return tuple(envelope for _, envelope in self._received)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channel of each envelope, in the same order."""
        return tuple(channel for channel, _ in self._received)

    def of_type(self, type: EnvelopeType | str) -> tuple[Mapping[str, Any], ...]:
        """Return the envelopes of one type."""
        return tuple(envelope for envelope in self.envelopes if envelope.get("type") == type)

    def clear(self) -> None:
        """Forget all envelopes."""
        self._received.clear()
