"""The file behind a SQLite store: whether it is still the one that was opened, and has room.

SQLite keeps writing to a file that was deleted or renamed; such writes are lost with the process.
"""

import os
from pathlib import Path

from stepwell.sessions.errors import StoreUnavailableError

_LEAST_FREE = 4 * 1024 * 1024
"""Bytes. One step may write a tool result of 1 MB several times: state, event, message."""
_MOVED = (
    "its file was moved, replaced or deleted while it was open. Writes are refused because they "
    "would be lost. Put the file back, or restart Stepwell with the database that it is to use"
)


_Identity = tuple[int, int]
"""Device and inode."""


class DatabaseFile:
    """The database file and its write-ahead log, as they were when the store opened them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name, self._wal = str(path), f"{path}-wal"
        self._opened = _identity(self._name)
        self._opened_wal: _Identity | None = None

    def require_same(self) -> None:
        """Raise ``StoreUnavailableError`` unless both are still where they were opened."""
        wal = _identity(self._wal)
        if self._opened_wal is None:
            # SQLite makes it with the first transaction and keeps it while a connection is open.
            self._opened_wal = wal
        if (_identity(self._name), wal) != (self._opened, self._opened_wal):
            raise StoreUnavailableError(f"the database {self._path}: {_MOVED}", reason=_MOVED)

    def require_room(self) -> None:
        """Raise ``StoreUnavailableError`` if the disk is full, or as good as full."""
        disk = os.statvfs(self._path)
        free = disk.f_bavail * disk.f_frsize
        if free < _LEAST_FREE:
            reason = f"its disk is full: {free:,} bytes are free. Free some space"
            raise StoreUnavailableError(f"the database {self._path}: {reason}", reason=reason)


def _identity(path: str) -> _Identity | None:
    try:
        status = os.stat(path)  # every commit looks, and Path.stat takes three times as long
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
