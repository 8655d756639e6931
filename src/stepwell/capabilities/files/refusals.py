"""Why a file can't be used, in words a model can act on. Only pure functions."""

import errno
from os import strerror

_WORDS = {
    errno.ENOENT: "does not exist; list_dir and search_files show what there is",
    errno.ENOTDIR: "leads through something that is not a directory",
    errno.EISDIR: "is a directory, not a file; list_dir shows what is in it",
    errno.EXDEV: "is outside the base directory; use a path inside it, and no symlink that is "
    "absolute or leads out of it",
    errno.ELOOP: "leads through too many symlinks, or through one that can't be followed",
    errno.EACCES: "may not be used: permission denied",
    errno.EPERM: "may not be used: permission denied",
    errno.EROFS: "can't be written: the file system is read-only",
    errno.ENAMETOOLONG: "has a name that is too long",
    errno.ENOSPC: "can't be written: the disk is full",
    errno.EDQUOT: "can't be written: the disk quota is used up",
    errno.EAGAIN: "is being moved by someone else right now; try again",
    errno.ENXIO: "is a special file (a socket, pipe or device), not a regular one",
}


class FileRefused(Exception):
    """A file tool will not do it; the text says why and what to do instead."""


def why(error: OSError, path: str) -> str:
    """What the system's refusal means for the path that the model gave.

    >>> why(FileNotFoundError(2, ""), "a.py")
    "'a.py' does not exist; list_dir and search_files show what there is"
    """
    number = error.errno or errno.EIO
    words = _WORDS.get(number) or f"can't be used: {strerror(number)}"
    return f"{shortened(path)!r} {words}"


def shortened(path: str) -> str:
    """A path short enough to be shown.

    >>> shortened("x" * 500)[-20:]
    'xxxxxxxxxxxxxxxxx...'
    """
    return path if len(path) <= 200 else path[:197] + "..."


def printable(name: str) -> str:
    r"""A name on one line, and no two names alike; a backslash is doubled.

    >>> print(printable("a\nb"), printable(r"a\nb"))
    a\nb a\\nb
    """
    return "".join(c if c.isprintable() and c != "\\" else ascii(c)[1:-1] for c in name)
