"""One output of a command: everything is counted and emitted, but only the end is kept."""

from codecs import getincrementaldecoder
from collections.abc import Callable

_DECODER = getincrementaldecoder("utf-8")
_MAX_CHARACTER_BYTES = 4
SLACK_BYTES = 65_536


class OutputTail:
    """Collects an output in pieces. Never splits a character in what it emits or keeps.

    >>> emitted = []
    >>> tail = OutputTail(keep=4, emit=emitted.append)
    >>> tail.feed(b"caf\\xc3"), tail.feed(b"\\xa9!"), tail.close()
    (None, None, None)
    >>> emitted, tail.text, tail.total
    (['caf', 'é!'], 'fé!', 6)
    """

    def __init__(self, *, keep: int, emit: Callable[[str], object] | None = None) -> None:
        self._keep = keep
        self._emit = emit
        self._decoder = _DECODER(errors="replace")
        self._last = bytearray()
        self.total = 0
        """Number of bytes received."""

    def feed(self, piece: bytes) -> None:
        """Add a piece of output and emit the characters it completes."""
        self.total += len(piece)
        self._last += piece
        # Not each time, because it copies what is kept; ``text`` cuts exactly.
        if len(self._last) > 2 * self._keep + SLACK_BYTES:
            del self._last[: len(self._last) - self._keep]
        if self._emit is not None:
            self._emit_text(self._decoder.decode(piece))

    def close(self) -> None:
        """Emit what is left of an incomplete character."""
        if self._emit is not None:
            self._emit_text(self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """The kept bytes as text, without a partial character at the start."""
        data = bytes(self._last)
        if self.total <= self._keep:
            return data.decode(errors="replace")
        data = data[-self._keep :] if self._keep else b""
        cut = len(data[: _MAX_CHARACTER_BYTES - 1])
        front = next((at for at in range(cut) if not _is_continuation(data[at])), cut)
        return data[front:].decode(errors="replace")

    def _emit_text(self, text: str) -> None:
        if text and self._emit is not None:
            self._emit(text)


def _is_continuation(byte: int) -> bool:
    """Return whether this is a continuation byte of a UTF-8 character."""
    return byte & 0xC0 == 0x80
