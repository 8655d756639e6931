"""What a transport for envelopes has to do: one method, async or sync."""

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol


class CanBroadcastAgentEvents(Protocol):
    """Sends one envelope, JSON-ready data, to whoever follows that channel.

    It may be async or sync; a sync one is called in a thread. It may raise or take long: it is
    called from a queue beside the run, which counts and reports what could not be sent.

    >>> class Printed:
    ...     def broadcast(self, channel: str, envelope: Mapping[str, Any]) -> None:
    ...         print(channel, envelope["type"])
    >>> Printed().broadcast("agent.42", {"type": "agent.status"})
    agent.42 agent.status
    """

    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> Awaitable[None] | None:
        """Send it."""
        ...
