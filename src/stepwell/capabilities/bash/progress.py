"""Tells listeners what a command says while it runs: seldom, and little at a time."""

from collections.abc import Callable
from typing import Protocol

from stepwell.capabilities.bash.output import plain
from stepwell.sandbox import Channel

INTERVAL_SECONDS = 0.25
MAX_CHARS = 2_000


class Timer(Protocol):
    """What ``loop.call_later`` returns."""

    def cancel(self) -> None:
        """Don't call."""
        ...


class OutputProgress:
    """Collects output and tells it at intervals; of a flood, only the end.

    What a command says in its first and its last interval is not told: the result follows at once.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._tell = tell
        self._call_later = call_later
        self._waiting = ""
        self._was_cut = False
        self._timer: Timer | None = None

    def __call__(self, _channel: Channel, text: str) -> None:
        """Note a piece of output. Both channels are told as one, in the order of arrival."""
        together = self._waiting + text
        self._waiting = together[-MAX_CHARS:]
        self._was_cut = self._was_cut or len(together) > MAX_CHARS
        self._arm()

    def close(self) -> None:
        """Tell nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = self._call_later(INTERVAL_SECONDS, self._flush)

    def _flush(self) -> None:
        self._timer = None
        # Up to the last line end if there is one, so that few lines are torn.
        end = self._waiting.rfind("\n") + 1 or len(self._waiting)
        ready, self._waiting = self._waiting[:end], self._waiting[end:]
        message = plain(ready).rstrip("\n")
        if message:
            self._tell(f"...{message}" if self._was_cut else message)
        self._was_cut = False
        self._arm()
