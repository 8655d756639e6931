"""Puts a new file in the place of an old one at once: readers see the one or the other, whole."""

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from errno import EACCES, EISDIR, ENXIO
from secrets import token_hex
from typing import BinaryIO

from stepwell.capabilities.files.confined import Place
from stepwell.capabilities.files.opening import NOFOLLOW

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
_PRIVILEGES = stat.S_ISUID | stat.S_ISGID

_last_look = threading.Lock()
"""Held from the last look at a file until it is replaced: of two edits one sees the other."""


def replaceable(place: Place) -> os.stat_result | None:
    """What is to be replaced, or None if nothing is there. Raises ``OSError`` if it may not be."""
    try:
        found = place.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        number = EISDIR if stat.S_ISDIR(found.st_mode) else ENXIO
        raise OSError(number, os.strerror(number))
    # A rename asks only the directory, and would replace what was protected on purpose.
    if not os.access(place.name, os.W_OK, dir_fd=place.directory):
        raise OSError(EACCES, os.strerror(EACCES))
    return found


def replace_at(
    place: Place,
    old: os.stat_result | None,
    fill: Callable[[BinaryIO], None],
    last_look: Callable[[], None],
) -> None:
    """Write a new file beside the old one, then rename it. On any failure nothing is left behind.

    ``last_look`` runs right before the rename and may raise to keep the old file. Mode and owner
    are kept, but for the set-user and set-group bits: no new content inherits privileges.
    """
    beside = f".stepwell-{token_hex(8)}.tmp"
    # Private until it has the old one's mode; the umask decides on a file that is new.
    mode = 0o666 if old is None else 0o600
    descriptor = os.open(beside, _NEW, mode, dir_fd=place.directory)
    is_in_place = False
    try:
        with open(descriptor, "wb") as file:
            fill(file)
            file.flush()
            if old is not None:
                _take_over(file.fileno(), old)
            os.fsync(file.fileno())
        with _last_look:
            last_look()
            os.rename(beside, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        is_in_place = True
    finally:
        if not is_in_place:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=place.directory)
    with suppress(OSError):  # some file systems can't; the file is in place all the same
        os.fsync(place.directory)


def _take_over(descriptor: int, old: os.stat_result) -> None:
    with suppress(PermissionError):  # only root can give files away
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & ~_PRIVILEGES)
