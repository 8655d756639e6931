"""A file whose reads can be stopped, by a cancelled call or a byte limit."""

from collections.abc import Callable
from typing import BinaryIO


class WatchedFile:
    """Calls ``before_read`` with the number of bytes read so far before each read; it may raise."""

    def __init__(self, file: BinaryIO, before_read: Callable[[int], None]) -> None:
        self.seek = file.seek
        self.fileno = file.fileno
        self._file = file
        self._before_read = before_read
        self._bytes_read = 0

    def read(self, size: int, /) -> bytes:
        """Read the next bytes."""
        return self._count(self._file.read, size)

    def readline(self, size: int, /) -> bytes:
        """Read the rest of the line, or the next bytes of it."""
        return self._count(self._file.readline, size)

    def _count(self, read: Callable[[int], bytes], size: int) -> bytes:
        self._before_read(self._bytes_read)
        data = read(size)
        self._bytes_read += len(data)
        return data


Readable = BinaryIO | WatchedFile
"""What the file tools read from."""
