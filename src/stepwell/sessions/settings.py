"""What can be set about sessions and workers. Every one of these is honoured in every mode."""

from enum import StrEnum
from math import inf

from msgspec import Struct

from stepwell.broadcasting.config import BroadcastConfig
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_number
from stepwell.tools import WhenUnknown


class WhenChanged(StrEnum):
    """What happens when an execution goes on and its agent's definition is another by now."""

    CONTINUE = "continue"
    STOP = "stop"


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How sessions and workers behave; the defaults suit most.

    >>> SessionSettings(lease_seconds=1.0, heartbeat_seconds=2.0)
    Traceback (most recent call last):
    ...
    stepwell.errors.ConfigurationError: heartbeat_seconds is 2.0; a lease of 1.0 is renewed twice
    """

    lease_seconds: float = 3.0
    """After so long without a word from its worker an execution is taken over."""
    heartbeat_seconds: float = 1.0
    poll_seconds: float = 0.5
    """How often a worker polls for work that no notification announced."""
    max_crashes: int = 3
    """An execution whose worker died so often in one step is set aside as failed."""
    shutdown_seconds: float = 10.0
    """Seconds that a worker that is to end has for it: it waits for the next step boundary, and
    keeps a quarter of the time, 2.5 s at most, to abandon what reaches none."""
    concurrency: int = 10
    """Executions that one worker runs at the same time."""
    when_unknown: WhenUnknown = WhenUnknown.TELL
    """For tools that do not say it themselves."""
    when_changed: WhenChanged = WhenChanged.CONTINUE
    flush_seconds: float = 0.2
    """What happens within a running step is stored so often, with the results so far."""
    snapshot_growth: float = 4.0
    """A whole snapshot is written when a chain, the whole one with its increments, is so many times
    the size of the state that it leads to."""
    max_unfinished_per_user: int = 100
    max_message_characters: int = 100_000
    stored_claims: tuple[str, ...] = ()
    """Claims of the principal that are stored with each execution, for its tools and hooks."""
    broadcast: BroadcastConfig = BroadcastConfig.standard()

    def __post_init__(self) -> None:
        for name in ("lease_seconds", "heartbeat_seconds", "poll_seconds", "flush_seconds"):
            if not 0 < getattr(self, name) < inf:
                raise ConfigurationError(f"{name} must be above zero, got {getattr(self, name)!r}")
        check_number(self.shutdown_seconds, "shutdown_seconds")
        for name in _COUNTS:
            if not 1 <= getattr(self, name) < inf:
                raise ConfigurationError(f"{name} must be 1 or more, got {getattr(self, name)!r}")
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise ConfigurationError(
                f"heartbeat_seconds is {self.heartbeat_seconds}; a lease of {self.lease_seconds} "
                "is renewed twice"
            )


_COUNTS = (
    "max_crashes",
    "concurrency",
    "max_unfinished_per_user",
    "max_message_characters",
    "snapshot_growth",
)
