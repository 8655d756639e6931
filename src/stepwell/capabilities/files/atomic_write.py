"""Replaces a file atomically: readers see the old content or the new, never a mixture."""

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from errno import EACCES, EISDIR, ENXIO
from secrets import token_hex
from typing import BinaryIO

from stepwell.capabilities.files.confined_directory import Place
from stepwell.capabilities.files.openat import NOFOLLOW

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
_PRIVILEGES = stat.S_ISUID | stat.S_ISGID

_rename_lock = threading.Lock()
"""Held from the last check until the rename, so that one of two concurrent edits sees the other."""


def stat_replaceable(place: Place) -> os.stat_result | None:
    """Stat the file to replace; None if there is none. Raises ``OSError`` if it must not be."""
    try:
        found = place.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        number = EISDIR if stat.S_ISDIR(found.st_mode) else ENXIO
        raise OSError(number, os.strerror(number))
    # A rename checks only the directory's permissions and would replace a read-only file.
    if not os.access(place.name, os.W_OK, dir_fd=place.directory):
        raise OSError(EACCES, os.strerror(EACCES))
    return found


def replace_atomically(
    place: Place,
    old: os.stat_result | None,
    fill: Callable[[BinaryIO], None],
    check_before_rename: Callable[[], None],
) -> None:
    """Write a temporary file next to the old one, then rename it. A failure leaves nothing behind.

    ``check_before_rename`` runs right before the rename and may raise to keep the old file. Mode
    and owner are kept, except the setuid and setgid bits: new content inherits no privileges.
    """
    temporary = f".stepwell-{token_hex(8)}.tmp"
    # Private until the old file's mode is copied; the umask applies to a new file.
    mode = 0o666 if old is None else 0o600
    descriptor = os.open(temporary, _NEW, mode, dir_fd=place.directory)
    renamed = False
    try:
        with open(descriptor, "wb") as file:
            fill(file)
            file.flush()
            if old is not None:
                _copy_owner_and_mode(file.fileno(), old)
            os.fsync(file.fileno())
        with _rename_lock:
            check_before_rename()
            os.rename(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        renamed = True
    finally:
        if not renamed:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=place.directory)
    with suppress(OSError):  # some file systems can't sync directories; the rename is done
        os.fsync(place.directory)


def _copy_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    with suppress(PermissionError):  # only root can change the owner
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & ~_PRIVILEGES)
