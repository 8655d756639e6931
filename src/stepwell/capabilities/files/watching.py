"""A file that is read only as long as somebody waits for it, and only so far."""

from collections.abc import Callable
from typing import BinaryIO, Protocol


class Readable(Protocol):
    """What the file tools use of a binary file."""

    def read(self, size: int, /) -> bytes:
        """The next bytes."""
        ...

    def readline(self, size: int, /) -> bytes:
        """The rest of the line, or the next bytes of it."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go elsewhere."""
        ...

    def fileno(self) -> int:
        """Its descriptor."""
        ...


class WatchedFile:
    """Tells before each reading how many bytes were read; whoever hears it may raise."""

    def __init__(self, file: BinaryIO, look_up: Callable[[int], None]) -> None:
        self._file = file
        self._look_up = look_up
        self._bytes_read = 0

    def read(self, size: int, /) -> bytes:
        """The next bytes."""
        return self._watched(self._file.read, size)

    def readline(self, size: int, /) -> bytes:
        """The rest of the line, or the next bytes of it."""
        return self._watched(self._file.readline, size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go elsewhere."""
        return self._file.seek(offset, whence)

    def fileno(self) -> int:
        """Its descriptor."""
        return self._file.fileno()

    def _watched(self, read: Callable[[int], bytes], size: int) -> bytes:
        self._look_up(self._bytes_read)
        data = read(size)
        self._bytes_read += len(data)
        return data
