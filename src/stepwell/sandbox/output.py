"""One output of a command: all of it is counted and told, the last of it is kept, and no more."""

from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable

_DECODER = getincrementaldecoder("utf-8")
_LONGEST = 4


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
        self._pieces: deque[bytes] = deque()
        self._kept = 0
        self.total = 0
        """How many bytes came, kept or not."""

    def take(self, piece: bytes) -> None:
        """Count it, keep it, and tell the characters it completes."""
        self.total += len(piece)
        self._pieces.append(piece)
        self._kept += len(piece)
        # Whole pieces are let go once those behind them are enough; the text cuts exactly.
        while self._kept - len(self._pieces[0]) > self._keep:
            self._kept -= len(self._pieces.popleft())
        if self._tell is not None:
            self._say(self._decoder.decode(piece))

    def close(self) -> None:
        """Tell what is left of a character that was never completed."""
        if self._tell is not None:
            self._say(self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """The last bytes as a text; a character that would be cut at its front is left out."""
        data = b"".join(self._pieces)
        if len(data) <= self._keep:
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
