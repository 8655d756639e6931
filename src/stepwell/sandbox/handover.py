"""Descriptors that a sandbox's program inherits: files it is given without a name on the disk, and
paths that nobody can swap for others meanwhile. All are closed when the command is over.
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
    """Opens descriptors, and closes every one of them at its end."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._inherited: list[int] = []

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
    def inherited(self) -> tuple[int, ...]:
        """Those that the program is to inherit."""
        return tuple(self._inherited)

    def data(self, content: bytes) -> str:
        """The number of a descriptor to read this from."""
        try:
            descriptor = self._inherit(_nameless_file())
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            os.lseek(descriptor, 0, os.SEEK_SET)
        except OSError as error:
            raise SandboxError(f"nothing can be handed over: {error.strerror}") from error
        return str(descriptor)

    def path(self, path: Path) -> str:
        """The number of a descriptor of what is at this path, and not behind a link there."""
        try:
            descriptor = self._inherit(os.open(path, os.O_PATH | os.O_NOFOLLOW))
            found = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError as error:
            raise _not_there(path, error) from error
        if found != str(path) or stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise _moved(path)
        return str(descriptor)

    def reading_pipe(self) -> tuple[int, int]:
        """Our end to read from, and the program's end."""
        ours, theirs = self._pipe()
        return ours, self._inherit(theirs)

    def writing_pipe(self) -> tuple[int, int]:
        """Our end to write to, and the program's end."""
        theirs, ours = self._pipe()
        return ours, self._inherit(theirs)

    def close(self, descriptor: int) -> None:
        """Close one before the end; closing it again does nothing."""
        if descriptor in self._open:
            self._open.discard(descriptor)
            with suppress(OSError):
                os.close(descriptor)

    def _pipe(self) -> tuple[int, int]:
        try:
            pair = os.pipe()
        except OSError as error:
            raise SandboxError(f"no pipe can be made: {error.strerror}") from error
        self._open.update(pair)
        return pair

    def _inherit(self, descriptor: int) -> int:
        self._open.add(descriptor)
        self._inherited.append(descriptor)
        return descriptor


def check_in_place(*paths: Path) -> None:
    """For programs that are told paths by name only: each must still be what the policy meant."""
    for path in paths:
        try:
            found = path.resolve(strict=True)
        except RuntimeError as error:  # links that lead in a circle
            raise _moved(path) from error
        except OSError as error:
            raise _not_there(path, error) from error
        if found != path:
            raise _moved(path)


def _not_there(path: Path, error: OSError) -> SandboxError:
    return SandboxError(
        f"the policy names {path}, which can't be opened: {error.strerror}; make it, or name "
        "another"
    )


def _moved(path: Path) -> SandboxError:
    return SandboxError(
        f"the policy names {path}, which was moved, removed or made a link since then; make a new "
        "policy"
    )


def _nameless_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("stepwell")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
