"""Reasons why a file can't be used, worded so that a model can act on them. Pure functions."""

import errno
from os import strerror

from stepwell.text import truncate

_REASONS = {
    errno.ENOENT: "does not exist; use list_dir or search_files to see what exists",
    errno.ENOTDIR: "leads through something that is not a directory",
    errno.EISDIR: "is a directory, not a file; use list_dir to see its entries",
    errno.EXDEV: "is outside the base directory; use a path inside it, without symlinks that "
    "are absolute or lead out of it",
    errno.ELOOP: "leads through too many symlinks, or through one that can't be followed",
    errno.EACCES: "can't be accessed: permission denied",
    errno.EPERM: "can't be accessed: permission denied",
    errno.EROFS: "can't be written: the file system is read-only",
    errno.ENAMETOOLONG: "has a name that is too long",
    errno.ENOSPC: "can't be written: the disk is full",
    errno.EDQUOT: "can't be written: the disk quota is used up",
    errno.EAGAIN: "is being moved by another process; try again",
    errno.ENXIO: "is a special file (a socket, pipe or device), not a regular one",
}


class FileRefused(Exception):
    """Raised when a file tool refuses a request; the text says why and what to do instead."""


def explain_error(error: OSError, path: str) -> str:
    """Explain a system error for the path that the model gave.

    >>> explain_error(FileNotFoundError(2, ""), "a.py")
    "'a.py' does not exist; use list_dir or search_files to see what exists"
    """
    number = error.errno or errno.EIO
    reason = _REASONS.get(number) or f"can't be used: {strerror(number)}"
    return f"{quote(path)} {reason}"


def quote(path: str) -> str:
    """Quote a path for a message, truncated if it is long.

    >>> quote("src/main.py"), quote("x" * 500)[-10:]
    ("'src/main.py'", "xxxxxx...'")
    """
    return repr(truncate(path, 200))


def printable(name: str) -> str:
    r"""Escape a name so that it fits on one line and stays distinct from every other name.

    >>> print(printable("a\nb"), printable(r"a\nb"))
    a\nb a\\nb
    """
    return "".join(c if c.isprintable() and c != "\\" else ascii(c)[1:-1] for c in name)
