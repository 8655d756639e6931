"""A base directory that nothing escapes. The only module that turns paths written by models into
descriptors; the tools work on descriptors and never on a path again.
"""

import errno
import os
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from typing import BinaryIO

from msgspec import Struct

from stepwell.capabilities.files.openat import (
    MAX_LINKS,
    MAX_NAMES,
    NOFOLLOW,
    READ_DIRECTORY,
    READ_FILE,
    Opener,
    best_opener,
    link_target,
    names_beneath,
    names_of,
    path_of,
)
from stepwell.capabilities.files.refusals import FileRefused, quote
from stepwell.errors import ConfigurationError

MAX_PATH_BYTES = 4095


class Place(Struct, frozen=True):
    """A name in an open directory: the location of a file that exists or will be created."""

    directory: int
    name: str

    def lstat(self) -> os.stat_result:
        """Stat the entry without following a symlink."""
        return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)

    @contextmanager
    def open(self) -> Generator[BinaryIO, None, None]:
        """Open the regular file at this place for reading."""
        descriptor = os.open(self.name, READ_FILE | NOFOLLOW, dir_fd=self.directory)
        with _open_regular(descriptor) as file:
            yield file


class ConfinedDirectory:
    """Opens files and directories beneath a base directory, and nothing else.

    Relative symlinks that stay inside are followed; absolute symlinks and symlinks that lead out
    are refused. A hard link is the file itself, so a file that someone linked into the base
    directory can be read there. Writing never goes through a hard link, because files are replaced
    and not overwritten. Mounts inside the base directory count as inside. If a directory is moved
    out of the base directory while a tool works in it, the tool continues in the moved directory.
    """

    def __init__(self, base_dir: str | PathLike[str], opener: Opener | None = None) -> None:
        if os.open not in os.supports_dir_fd:
            raise ConfigurationError("the file tools need a POSIX system such as Linux or macOS")
        given = os.fspath(base_dir) if isinstance(base_dir, str | PathLike) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if not isinstance(given, str) or not given:
            raise ConfigurationError(
                f"base_dir must be a path, got {base_dir!r:.80}. Write base_dir='project'"
            )
        if not os.path.isdir(given):
            raise ConfigurationError(
                f"base_dir {given!r} is not an existing directory. Create it first, or choose "
                "another directory"
            )
        self.path = os.path.realpath(given)
        self._roots = (names_of(self.path), names_of(os.path.abspath(given)))
        self._opener = opener or best_opener()

    def names(self, path: str) -> tuple[str, ...]:
        """Split a path beneath the base directory into names. Raises ``FileRefused``."""
        if not path:
            raise FileRefused("the path is empty; use '.' for the base directory")
        if "\0" in path:
            raise FileRefused("the path contains a NUL byte, which no file name can have")
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise FileRefused(f"{quote(path)} is not a valid file name") from None
        if path == "~" or (path.startswith("~") and "/" in path):
            raise FileRefused(
                f"{quote(path)} is not expanded; use a path relative to the base "
                "directory, and ./~ for a name that starts with ~"
            )
        names = names_of(path)
        if path.startswith("/"):
            names = self._relative_names(names, path)
        if size > MAX_PATH_BYTES or len(names) > MAX_NAMES:
            raise FileRefused(f"the path {quote(path)} is too long")
        return names

    def _relative_names(self, names: tuple[str, ...], path: str) -> tuple[str, ...]:
        for root in self._roots:
            if names[: len(root)] == root:
                return names[len(root) :]
        raise FileRefused(
            f"{quote(path)} is outside the base directory; use a path relative to it, "
            "such as 'src/main.py'"
        )

    def descriptor(self, names: Sequence[str], flags: int) -> int:
        """Open the path made of these names; the caller closes it. Raises ``OSError``."""
        if len(names) > MAX_NAMES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        try:
            root = os.open(self.path, READ_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            raise FileRefused("the base directory itself no longer exists") from None
        try:
            return self._opener(root, names, flags)
        finally:
            os.close(root)

    @contextmanager
    def file(self, path: str) -> Generator[BinaryIO, None, None]:
        """Open a regular file for reading."""
        with self.file_at(self.names(path)) as file:
            yield file

    @contextmanager
    def file_at(self, names: Sequence[str]) -> Generator[BinaryIO, None, None]:
        """Open a regular file for reading, by the names of its path."""
        with _open_regular(self.descriptor(names, READ_FILE)) as file:
            yield file

    @contextmanager
    def directory(self, names: Sequence[str], flags: int = 0) -> Generator[int, None, None]:
        """Open a directory for listing and yield its descriptor."""
        descriptor = self.descriptor(names, READ_DIRECTORY | flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def place(
        self, path: str, check: Callable[[str], None], *, create_parents: bool = False
    ) -> Generator[Place, None, None]:
        """Yield the place of a file to be written. A symlink is followed and stays a symlink.

        ``check`` gets the real path of everything about to be created or replaced, and may raise.
        The path of a directory ends with a slash.
        """
        names = self.names(path)
        if path.endswith(("/", "/.")):
            raise FileRefused(f"{quote(path)} is a directory path; give a file name")
        if ".." not in names:  # check early, so that a refused path creates no directories
            check(os.path.join(self.path, *names))
        for _ in range(MAX_LINKS):
            if not names or names[-1] == ".." or len(names) > MAX_NAMES:
                break
            parent = self._parent(names[:-1], check if create_parents else None)
            try:
                target = link_target(parent, names[-1])
                if target is None:
                    check(os.path.join(path_of(parent), names[-1]))
                    yield Place(parent, names[-1])
                    return
            finally:
                os.close(parent)
            names = (*names[:-1], *names_beneath(target))
        is_directory = not names or names[-1] == ".."
        number = errno.EISDIR if is_directory else errno.ELOOP
        raise OSError(number, os.strerror(number))

    def _parent(self, names: tuple[str, ...], create: Callable[[str], None] | None) -> int:
        try:
            return self.descriptor(names, READ_DIRECTORY)
        except FileNotFoundError:
            if create is None or not names:
                raise
        above = self._parent(names[:-1], create)
        try:
            create(os.path.join(path_of(above), names[-1], ""))
            with suppress(FileExistsError):
                os.mkdir(names[-1], dir_fd=above)
        finally:
            os.close(above)
        return self.descriptor(names, READ_DIRECTORY)


@contextmanager
def _open_regular(descriptor: int) -> Generator[BinaryIO, None, None]:
    """Wrap the descriptor of a regular file. The descriptor is closed in every case."""
    try:
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind):
            number = errno.EISDIR if stat.S_ISDIR(kind) else errno.ENXIO
            raise OSError(number, os.strerror(number))
    except OSError:
        os.close(descriptor)
        raise
    with open(descriptor, "rb") as file:
        yield file
