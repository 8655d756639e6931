"""How much is broadcast, and how long a transport may take."""

from math import inf
from types import UnionType
from typing import Any, NoReturn

from msgspec import Struct

from stepwell.errors import ConfigurationError

_SWITCHES = (
    "include_stream_chunks",
    "include_continuation_trace",
    "include_tool_args",
    "auto_status_tracking",
)


class BroadcastConfig(Struct, frozen=True, kw_only=True):
    """What the envelopes of a run tell; the presets are ``minimal``, ``standard`` and ``debug``.

    >>> BroadcastConfig.minimal().include_stream_chunks
    False
    """

    include_stream_chunks: bool = True
    include_continuation_trace: bool = False
    include_tool_args: bool = False
    """Tool calls with their arguments, not only a summary of them."""
    max_arg_length: int = 500
    """Longer texts among the arguments are clipped to so many characters."""
    auto_status_tracking: bool = True
    """Status envelopes follow from the events; otherwise only those asked for are sent."""
    max_queued: int = 10_000
    """Envelopes that wait for a slow transport; what comes on top is dropped and counted."""
    send_timeout: float = 10.0
    """Seconds that a transport has for one envelope."""

    def __post_init__(self) -> None:
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                self._refuse(name, "True or False")
        for name in ("max_arg_length", "max_queued"):
            if not _is_above_zero(getattr(self, name), int):
                self._refuse(name, "a whole number above zero")
        if not _is_above_zero(self.send_timeout, int | float):
            self._refuse("send_timeout", "a number above zero")

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        value = getattr(self, name)
        raise ConfigurationError(f"BroadcastConfig.{name} is {value!r}; give {wanted}")

    @classmethod
    def minimal(cls) -> "BroadcastConfig":
        """Status, steps and tools; no streamed text."""
        return cls(include_stream_chunks=False)

    @classmethod
    def standard(cls) -> "BroadcastConfig":
        """With streamed text; the default."""
        return cls()

    @classmethod
    def debug(cls) -> "BroadcastConfig":
        """Everything: also decisions with every vote, and the arguments of tools."""
        return cls(include_continuation_trace=True, include_tool_args=True)


def _is_above_zero(value: Any, wanted: type | UnionType) -> bool:
    return isinstance(value, wanted) and not isinstance(value, bool) and 0 < value < inf
