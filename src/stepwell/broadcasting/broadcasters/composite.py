"""Combines several broadcasters into one."""

import asyncio
from collections.abc import Mapping
from typing import Any

from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.checks import refuse_what_cannot_broadcast
from stepwell.broadcasting.delivery.broadcast_call import BroadcastCall
from stepwell.broadcasting.delivery.calling_thread import CallingThread
from stepwell.broadcasting.delivery.trouble import Trouble
from stepwell.clock import SystemClock
from stepwell.errors import ConfigurationError, StepwellError


class CompositeBroadcaster:
    """Sends every envelope to all its members.

    An adapter gives each member its own queue, so that a slow one delays no other.

    >>> from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
    >>> first, second = RecordingBroadcaster(), RecordingBroadcaster()
    >>> both = CompositeBroadcaster(first, CompositeBroadcaster(second))
    >>> asyncio.run(both.broadcast("agent.42", {"type": "agent.status"}))
    >>> first.channels, second.channels, both.members == (first, second)
    (('agent.42',), ('agent.42',), True)
    """

    def __init__(self, *broadcasters: CanBroadcastAgentEvents) -> None:
        if not broadcasters:
            raise ConfigurationError(
                "CompositeBroadcaster() has no broadcasters; write "
                "CompositeBroadcaster(first, second)"
            )
        for given in broadcasters:
            refuse_what_cannot_broadcast("CompositeBroadcaster", given)
        self._members = tuple(member for given in broadcasters for member in members_of(given))
        self._callers = tuple(CallingThread() for _ in self._members)
        self._troubles = tuple(Trouble(type(member).__name__) for member in self._members)

    @property
    def members(self) -> tuple[CanBroadcastAgentEvents, ...]:
        """The broadcasters, with those of nested composites in their place."""
        return self._members

    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        """Send an envelope to all at once. Raises ``StepwellError``, which names those that
        failed."""
        names = [type(member).__name__ for member in self._members]
        outcomes = await asyncio.gather(
            *(
                BroadcastCall(member, caller, SystemClock(), trouble.report_blocking).outcome(
                    channel, envelope, None
                )
                for member, caller, trouble in zip(
                    self._members, self._callers, self._troubles, strict=True
                )
            )
        )
        failed = [
            f"{name}: {error}"
            for name, error in zip(names, outcomes, strict=True)
            if error is not None
        ]
        if failed:
            raise StepwellError(
                f"{len(failed)} of {len(names)} broadcasters could not send the envelope: "
                + "; ".join(failed)
            )


def members_of(broadcaster: CanBroadcastAgentEvents) -> tuple[CanBroadcastAgentEvents, ...]:
    """Return the members of a composite; any other broadcaster is its own only member."""
    if isinstance(broadcaster, CompositeBroadcaster):
        return broadcaster.members
    return (broadcaster,)
