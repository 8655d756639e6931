"""Reports the output of a running command, throttled and truncated."""

from collections.abc import Callable
from typing import Protocol

from stepwell.capabilities.bash.output import strip_terminal_codes
from stepwell.sandbox import Channel

INTERVAL_SECONDS = 0.25
MAX_CHARS = 2_000


class Timer(Protocol):
    """What ``loop.call_later`` returns."""

    def cancel(self) -> None:
        """Cancel the pending call."""
        ...


class OutputProgress:
    """Buffers output and reports it at intervals; of a lot of output, only the end.

    Output of the last interval is not reported, because the result follows at once.
    """

    def __init__(
        self,
        send: Callable[[str], None],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._send = send
        self._call_later = call_later
        self._buffer = ""
        self._truncated = False
        self._timer: Timer | None = None

    def __call__(self, _channel: Channel, text: str) -> None:
        """Buffer a piece of output. Both channels are reported as one, in order of arrival."""
        combined = self._buffer + text
        self._buffer = combined[-MAX_CHARS:]
        self._truncated = self._truncated or len(combined) > MAX_CHARS
        self._arm()

    def close(self) -> None:
        """Stop reporting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._buffer:
            self._timer = self._call_later(INTERVAL_SECONDS, self._flush)

    def _flush(self) -> None:
        self._timer = None
        # Report up to the last line end, if there is one, so that few lines are split.
        end = self._buffer.rfind("\n") + 1 or len(self._buffer)
        ready, self._buffer = self._buffer[:end], self._buffer[end:]
        message = strip_terminal_codes(ready).rstrip("\n")
        if message:
            self._send(f"...{message}" if self._truncated else message)
        self._truncated = False
        self._arm()
