"""A directory beneath which everything happens. The one place that turns the paths models write
into descriptors; the tools work on those, never on a path again.
"""

import errno
import os
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from typing import BinaryIO

from msgspec import Struct

from stepwell.capabilities.files.opening import (
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
from stepwell.capabilities.files.refusals import FileRefused, shortened
from stepwell.errors import ConfigurationError

MAX_PATH_BYTES = 4095


class Place(Struct, frozen=True):
    """A name in an open directory: where a file is, or will be."""

    directory: int
    name: str

    def lstat(self) -> os.stat_result:
        """What is there now; a symlink is not followed."""
        return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)

    @contextmanager
    def opened(self) -> Generator[BinaryIO, None, None]:
        """The regular file that is there."""
        descriptor = os.open(self.name, READ_FILE | NOFOLLOW, dir_fd=self.directory)
        with _regular(descriptor) as file:
            yield file


class ConfinedDirectory:
    """Opens what lies beneath a base directory, and nothing else.

    Relative symlinks that stay inside are followed; absolute ones, and those that lead out, are
    refused. A hard link is the file itself, so what someone linked into the base directory can be
    read there; writing never goes through one, as files are replaced and not overwritten. What is
    mounted inside is inside. Moving a directory out of the base directory while a tool works in
    it takes that tool's work along.
    """

    def __init__(self, base_dir: str | PathLike[str], opener: Opener | None = None) -> None:
        if os.open not in os.supports_dir_fd:
            raise ConfigurationError("the file tools need a POSIX system, such as Linux or macOS")
        given = os.fspath(base_dir) if isinstance(base_dir, str | PathLike) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if not isinstance(given, str) or not given:
            raise ConfigurationError(
                f"the base directory is a path, got {base_dir!r:.80}; write base_dir='project'"
            )
        if not os.path.isdir(given):
            raise ConfigurationError(
                f"the base directory {given!r} is not an existing directory; create it first, or "
                "give another one"
            )
        self.path = os.path.realpath(given)
        self._roots = (names_of(self.path), names_of(os.path.abspath(given)))
        self._opener = opener or best_opener()

    def names(self, path: str) -> tuple[str, ...]:
        """The names of a path beneath the base directory. Raises ``FileRefused``."""
        if not path:
            raise FileRefused("the path is empty; write '.' for the base directory")
        if "\0" in path:
            raise FileRefused("the path has a NUL byte in it; no file is named so")
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise FileRefused(f"{shortened(path)!r} can't be the name of a file") from None
        if path == "~" or (path.startswith("~") and "/" in path):
            raise FileRefused(
                f"{shortened(path)!r} is not expanded; write paths from the base directory on, "
                "and ./~ for a name that begins so"
            )
        names = names_of(path)
        if path.startswith("/"):
            names = self._beneath(names, path)
        if size > MAX_PATH_BYTES or len(names) > MAX_NAMES:
            raise FileRefused(f"the path {shortened(path)!r} is too long")
        return names

    def _beneath(self, names: tuple[str, ...], path: str) -> tuple[str, ...]:
        for root in self._roots:
            if names[: len(root)] == root:
                return names[len(root) :]
        raise FileRefused(
            f"{shortened(path)!r} is outside the base directory; write paths from there on, such "
            "as 'src/main.py'"
        )

    def descriptor(self, names: Sequence[str], flags: int) -> int:
        """Open what the names lead to; the caller closes it. Raises ``OSError``."""
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
        """A regular file, open for reading."""
        with self.file_at(self.names(path)) as file:
            yield file

    @contextmanager
    def file_at(self, names: Sequence[str]) -> Generator[BinaryIO, None, None]:
        """A regular file by its names, open for reading."""
        with _regular(self.descriptor(names, READ_FILE)) as file:
            yield file

    @contextmanager
    def directory(self, names: Sequence[str], flags: int = 0) -> Generator[int, None, None]:
        """The descriptor of a directory, open for listing."""
        descriptor = self.descriptor(names, READ_DIRECTORY | flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def place(
        self, path: str, check: Callable[[str], None], *, create_parents: bool = False
    ) -> Generator[Place, None, None]:
        """Where a file is to be replaced. A symlink is followed, so that it stays one.

        ``check`` gets the real path of whatever is about to be made or replaced, and may raise. The
        path of a directory ends with a slash.
        """
        names = self.names(path)
        if path.endswith(("/", "/.")):
            raise FileRefused(f"{shortened(path)!r} names a directory; give the name of a file")
        if ".." not in names:  # so that no directories are made on the way to a refusal
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
def _regular(descriptor: int) -> Generator[BinaryIO, None, None]:
    """The descriptor as a file, if it is a regular one; closed afterwards in any case."""
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
