"""A program of the host, opened once: later commands run the same file, even if its path changes.

Used for everything that this process executes to confine a command.
"""

import hashlib
import os
import stat
import sys
from functools import cache

from stepwell.errors import SandboxError
from stepwell.sandbox.environment import PATH, path_entries

_CHUNK_BYTES = 1024 * 1024


class Program:
    """An open program. ``path`` is its name, ``executable`` the path to execute instead.

    >>> Program("/bin/sh").path
    '/bin/sh'
    """

    def __init__(self, path: str) -> None:
        """Open the program. Raises ``OSError`` if it is missing or not executable."""
        self.path = path
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise PermissionError(13, os.strerror(13), path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._file_facts = _file_facts(self._descriptor)
        self._digest = _digest(self._descriptor)

    @property
    def is_system(self) -> bool:
        """Whether only root can change the file."""
        found = os.fstat(self._descriptor)
        return found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    @property
    def executable(self) -> str:
        """The open file as a path for ``exec``. Raises ``SandboxError`` if its content changed.

        The file may be changed through a hard link elsewhere, so its content is compared again when
        the kernel reports a change of the file.
        """
        facts = _file_facts(self._descriptor)
        if facts != self._file_facts:
            if _digest(self._descriptor) != self._digest:
                raise SandboxError(
                    f"{self.path} was changed since this process opened it, so it is not run; "
                    "find out who changed it, and restart this process"
                )
            self._file_facts = facts
        if sys.platform != "linux":
            return self.path
        # The descriptor of this process, not of the child: the child closes it before exec, and a
        # confined command must not inherit a descriptor of a file outside.
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"


@cache
def host_python() -> Program:
    """Return the base interpreter, which needs no virtual environment with ``-I -S``."""
    path = getattr(sys, "_base_executable", "") or sys.executable
    if not path:
        raise SandboxError("this Python does not know its own program (sys.executable is empty)")
    try:
        return Program(os.path.realpath(path))
    except OSError as error:
        raise SandboxError(f"{path} can't be opened: {error.strerror}") from error


def find_programs(name: str) -> list[Program]:
    """Find programs by name: first on the PATH of this process, then in the system's folders."""
    found: dict[str, Program] = {}
    for folder in (*path_entries(), *PATH.split(":")):
        path = os.path.join(folder, name)
        real = os.path.realpath(path)
        if real not in found and os.path.isabs(folder):
            try:
                found[real] = Program(path)
            except OSError:
                continue
    return list(found.values())


def _file_facts(descriptor: int) -> tuple[int, ...]:
    found = os.fstat(descriptor)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _digest(descriptor: int) -> bytes:
    digest = hashlib.blake2b()
    at = 0
    while chunk := os.pread(descriptor, _CHUNK_BYTES, at):
        digest.update(chunk)
        at += len(chunk)
    return digest.digest()
