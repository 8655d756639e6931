"""One output of a command: all of it is counted and told, the last of it is kept, and no more."""

from codecs import getincrementaldecoder
from collections.abc import Callable

_DECODER = getincrementaldecoder("utf-8")
_LONGEST = 4
SLACK_BYTES = 65_536


class OutputTail:
    """Takes an output in pieces, and never splits a character in what it tells and keeps.

    >>> heard = []
    >>> tail = OutputTail(keep=4, tell=heard.append)
    >>> tail.take(b"caf\\xc3"), tail.take(b"\\xa9!"), tail.close()
    (None, None, None)
    >>> heard, tail.text, tail.total
    (['caf', 'é!'], 'fé!', 6)
    """

    def __init__(self, *, keep: int, tell: Callable[[str], object] | None = None) -> None:
        self._keep = keep
        self._tell = tell
        self._decoder = _DECODER(errors="replace")
        self._last = bytearray()
        self.total = 0
        """How many bytes came, kept or not."""

    def take(self, piece: bytes) -> None:
        """Count it, keep it, and tell the characters it completes."""
        self.total += len(piece)
        self._last += piece
        # Not each time, since it moves what is kept; the text cuts exactly.
        if len(self._last) > 2 * self._keep + SLACK_BYTES:
            del self._last[: len(self._last) - self._keep]
        if self._tell is not None:
            self._say(self._decoder.decode(piece))

    def close(self) -> None:
        """Tell what is left of a character that was never completed."""
        if self._tell is not None:
            self._say(self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """The last bytes as a text; a character that would be cut at its front is left out."""
        data = bytes(self._last)
        if self.total <= self._keep:
            return data.decode(errors="replace")
        data = data[-self._keep :] if self._keep else b""
        cut = len(data[: _LONGEST - 1])
        front = next((at for at in range(cut) if not _continues(data[at])), cut)
        return data[front:].decode(errors="replace")

    def _say(self, text: str) -> None:
        if text and self._tell is not None:
            self._tell(text)


def _continues(byte: int) -> bool:
    """Whether this is a byte of a UTF-8 character other than its first."""
    return byte & 0xC0 == 0x80
