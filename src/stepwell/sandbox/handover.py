"""Descriptors that a sandbox's program inherits: files without a name on disk, and paths that
nobody can swap meanwhile. All are closed when the command is over.
"""

import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from stepwell.errors import SandboxError


class Handover:
    """Opens descriptors and closes all of them at its end."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._inherited_descriptors: list[int] = []

    def __enter__(self) -> "Handover":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for descriptor in tuple(self._open):
            self.close(descriptor)

    @property
    def inherited_descriptors(self) -> tuple[int, ...]:
        """The descriptors that the program inherits."""
        return tuple(self._inherited_descriptors)

    def data(self, content: bytes) -> str:
        """Return the number of a descriptor from which the program reads this content."""
        try:
            descriptor = self._inherit(_nameless_file())
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            os.lseek(descriptor, 0, os.SEEK_SET)
        except OSError as error:
            raise SandboxError(f"no temporary file can be created: {error.strerror}") from error
        return str(descriptor)

    def path(self, path: Path) -> str:
        """Return the number of a descriptor of this path, which must not be a symlink."""
        try:
            descriptor = self._inherit(os.open(path, os.O_PATH | os.O_NOFOLLOW))
            found = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError as error:
            raise _open_error(path, error) from error
        if found != str(path) or stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise _moved_error(path)
        return str(descriptor)

    def reading_pipe(self) -> tuple[int, int]:
        """Return our end to read from, and the program's end."""
        ours, theirs = self._pipe()
        return ours, self._inherit(theirs)

    def writing_pipe(self) -> tuple[int, int]:
        """Return our end to write to, and the program's end."""
        theirs, ours = self._pipe()
        return ours, self._inherit(theirs)

    def close(self, descriptor: int) -> None:
        """Close a descriptor early; closing it again does nothing."""
        if descriptor in self._open:
            self._open.discard(descriptor)
            with suppress(OSError):
                os.close(descriptor)

    def _pipe(self) -> tuple[int, int]:
        try:
            pair = os.pipe()
        except OSError as error:
            raise SandboxError(f"no pipe can be created: {error.strerror}") from error
        self._open.update(pair)
        return pair

    def _inherit(self, descriptor: int) -> int:
        self._open.add(descriptor)
        self._inherited_descriptors.append(descriptor)
        return descriptor


def check_in_place(*paths: Path) -> None:
    """Raise if a path is no longer what the policy meant; for programs that take paths by name."""
    for path in paths:
        try:
            found = path.resolve(strict=True)
        except RuntimeError as error:  # a symlink loop
            raise _moved_error(path) from error
        except OSError as error:
            raise _open_error(path, error) from error
        if found != path:
            raise _moved_error(path)


def _open_error(path: Path, error: OSError) -> SandboxError:
    return SandboxError(
        f"the policy names {path}, which can't be opened: {error.strerror}; create it, or choose "
        "another path"
    )


def _moved_error(path: Path) -> SandboxError:
    return SandboxError(
        f"the policy names {path}, which was moved, removed or made a link since then; create a "
        "new policy"
    )


def _nameless_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("stepwell")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
