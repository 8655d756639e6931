"""The protocol of a transport for envelopes: one method, async or sync."""

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol


class CanBroadcastAgentEvents(Protocol):
    """Sends one envelope, as JSON data, to the followers of a channel.

    It may be async or sync; a sync one is called in a thread. It may raise or take long: a queue
    beside the run calls it, and counts and logs what could not be sent.

    >>> class Printed:
    ...     def broadcast(self, channel: str, envelope: Mapping[str, Any]) -> None:
    ...         print(channel, envelope["type"])
    >>> Printed().broadcast("agent.42", {"type": "agent.status"})
    agent.42 agent.status
    """

    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> Awaitable[None] | None:
        """Send it."""
        ...
