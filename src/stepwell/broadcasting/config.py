"""What is broadcast, and how long a transport may take."""

from stepwell.journal.config import ProjectionConfig, is_above_zero


class BroadcastConfig(ProjectionConfig, frozen=True, kw_only=True):
    """What the envelopes of a run contain; the presets are ``minimal``, ``standard`` and ``debug``.

    >>> BroadcastConfig.minimal().include_stream_chunks
    False
    """

    max_queued: int = 10_000
    """Envelopes that may wait for a slow transport; beyond that, envelopes are dropped and
    counted."""
    send_timeout: float = 10.0
    """Seconds that a transport has for one envelope."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_above_zero(self.max_queued, int):
            self.refuse("max_queued", "a whole number above zero")
        if not is_above_zero(self.send_timeout, int | float):
            self.refuse("send_timeout", "a number above zero")

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
        """Everything, including decisions with every vote and the arguments of tools."""
        return cls(include_continuation_trace=True, include_tool_args=True)
