"""Two ways to open a path beneath a directory so that no symlink, ``..`` or swap leads out of it.

``openat2`` lets the kernel resolve the whole path in one call. Where it is missing, ``walk`` opens
one name after the other. Both fail with ``EXDEV`` on a path that leads out and on absolute
symlinks.
"""

import ctypes
import errno
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

Opener = Callable[[int, Sequence[str], int], int]
"""Takes an open directory, the names of a path beneath it and flags; returns a new descriptor."""

MAX_LINKS = 40
MAX_NAMES = 256
"""Names in one path, including those of followed symlinks; ``walk`` holds one descriptor each."""

_NOTHING = 0
NOFOLLOW = getattr(os, "O_NOFOLLOW", _NOTHING)
READ_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", _NOTHING)
    | getattr(os, "O_NOCTTY", _NOTHING)
    | getattr(os, "O_CLOEXEC", _NOTHING)
)
"""Never blocks on a pipe and never acquires a controlling terminal."""
READ_DIRECTORY = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", _NOTHING) | getattr(os, "O_CLOEXEC", _NOTHING)
)
_PASS_THROUGH = READ_DIRECTORY | getattr(os, "O_PATH", _NOTHING)
"""A directory on the path needs no read permission."""

_SYS_OPENAT2 = 437
_NO_MAGICLINKS = 0x02
_BENEATH = 0x08
_TRIES = 64


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def names_of(path: str) -> tuple[str, ...]:
    """The names in a path; ``..`` stays, since what it means is known only when it is opened.

    >>> names_of("./a//b/../c/")
    ('a', 'b', '..', 'c')
    """
    return tuple(name for name in path.split("/") if name not in ("", "."))


def openat2(root: int, names: Sequence[str], flags: int) -> int:
    """Open a path beneath the root, resolved by the kernel."""
    how = _OpenHow(flags, 0, _BENEATH | _NO_MAGICLINKS)
    path = os.fsencode("/".join(names) or ".")
    failure = errno.EAGAIN
    for _ in range(_TRIES):  # EAGAIN: something moved while the kernel resolved a ".."
        opened = _libc().syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(root),
            ctypes.c_char_p(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if opened >= 0:
            return opened
        failure = ctypes.get_errno()
        if failure not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(failure, os.strerror(failure))


def walk(root: int, names: Sequence[str], flags: int) -> int:
    """Open a path beneath the root one name at a time, resolving symlinks itself."""
    ahead = deque(names)
    passed: list[int] = []  # the directories passed so far, which ".." returns to
    links = 0
    try:
        while ahead:
            name = ahead.popleft()
            here = passed[-1] if passed else root
            if name == "..":
                if not passed:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                os.close(passed.pop())
                continue
            try:
                opened = os.open(name, (_PASS_THROUGH if ahead else flags) | NOFOLLOW, dir_fd=here)
            except OSError as error:
                target = link_target(here, name)
                if target is None or (flags & NOFOLLOW and not ahead):
                    raise
                links += 1
                _refuse_long(links, len(passed) + len(ahead), error)
                ahead.extendleft(reversed(names_beneath(target)))
                continue
            if not ahead:
                return opened
            passed.append(opened)
            _refuse_long(links, len(passed), None)
        return os.open(".", flags, dir_fd=passed[-1] if passed else root)
    finally:
        for descriptor in passed:
            os.close(descriptor)


def _refuse_long(links: int, names: int, cause: OSError | None) -> None:
    if links > MAX_LINKS or names > MAX_NAMES:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from cause


def link_target(directory: int, name: str) -> str | None:
    """Return the target of a symlink, or None if the name is missing or not a symlink."""
    with suppress(OSError):
        return os.readlink(name, dir_fd=directory)
    return None


def path_of(directory: int) -> str:
    """Return the real path of an open directory."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(directory, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{directory}")


def names_beneath(target: str) -> tuple[str, ...]:
    """Split a symlink's target into names. Raises ``OSError`` if it is absolute."""
    if target.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return names_of(target)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def best_opener() -> Opener:
    """Return ``openat2`` if a test shows that it confines, else ``walk``."""
    if not sys.platform.startswith("linux"):
        return walk
    root = os.open("/", READ_DIRECTORY)
    try:
        return openat2 if openat2_confines(root) else walk
    finally:
        os.close(root)


def openat2_confines(root: int) -> bool:
    """Return whether ``openat2`` works here; old kernels and container filters lack it."""
    try:
        os.close(openat2(root, (), READ_DIRECTORY))
        os.close(openat2(root, ("..",), READ_DIRECTORY))
    except OSError as error:
        return error.errno == errno.EXDEV
    return False
