"""How much is broadcast, and how long a transport may take."""

from msgspec import Struct

from stepwell.errors import ConfigurationError


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
    max_queued: int = 1000
    """Envelopes that wait for a slow transport; what comes on top is dropped and counted."""
    send_timeout: float = 10.0
    """Seconds that a transport has for one envelope."""

    def __post_init__(self) -> None:
        for name in ("max_arg_length", "max_queued", "send_timeout"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(
                    f"BroadcastConfig.{name} is {getattr(self, name)}; give a number above zero"
                )

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
