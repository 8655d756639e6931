"""Keeps this process from importing what a tool or a command wrote into a writable directory.

The directory of an application is often both on ``sys.path`` and what its agent works in. A module
that was written there after the directory was opened is not imported: the one further along the
path is, and if there is none, the import fails.
"""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from stepwell.sandbox.host.protection import host_path_of
from stepwell.sandbox.policy import ExecutionPolicy

_COARSE_CLOCK = getattr(time, "CLOCK_REALTIME_COARSE", 5)
_MOST_ROOTS = 256


class WrittenLater(ImportError):
    """A module lies in a writable directory and was written after that was opened to tools."""


class ImportGuard(MetaPathFinder):
    """The first finder on ``sys.meta_path``: asks the others, and checks what they found."""

    def __init__(self) -> None:
        self._opened: dict[str, int] = {}

    def add(self, roots: Iterable[Path]) -> None:
        """Guard these directories from now on. One that is guarded already stays so."""
        # A new dictionary each time: another thread may be importing by the old one.
        opened = {str(root): _now() for root in roots} | self._opened
        if len(opened) > _MOST_ROOTS:
            # Directories made for one command: what is gone can't be imported from.
            opened = {root: at for root, at in opened.items() if os.path.isdir(root)}
        self._opened = opened
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders give, unless it was written later."""
        spec = self._found(fullname, path, target)
        if spec is None or (root := self._written_later(spec)) is None:
            return spec
        entries = sys.path if path is None else path
        outside = [entry for entry in entries if self._root_of(entry or ".") is None]
        elsewhere = PathFinder.find_spec(fullname, outside, target)
        if elsewhere is None:
            raise WrittenLater(
                f"{fullname} is not imported: {spec.origin} was written after {root} was opened "
                "to the tools of an agent. Start this process again once you have looked at the "
                "file, keep the application's code out of that directory, or set "
                "protect_host=False in the policy",
                name=fullname,
                path=spec.origin,
            )
        return elsewhere

    def _found(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        finders = list(sys.meta_path)
        # Those behind this one only: another finder that asks all would never end.
        for finder in finders[finders.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def _written_later(self, spec: ModuleSpec) -> str | None:
        """The guarded directory of a module that was written after it was opened."""
        # Of a module in an archive, the archive is the file.
        location: str = getattr(spec.loader, "archive", spec.origin) or ""
        guarded = self._root_of(location) if spec.has_location and location else None
        if guarded is None or host_path_of(os.path.realpath(location)) is not None:
            return None
        root, opened = guarded
        if not _is_older(location, root, opened):
            return root
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _OldSource(spec.loader.name, spec.loader.path, opened)
            spec.cached = None
        return None

    def _root_of(self, path: str) -> tuple[str, int] | None:
        """The guarded directory that a path lies in, and when it was opened."""
        places = {os.path.abspath(path), os.path.realpath(path)}
        for root, opened in self._opened.items():
            if any(place == root or place.startswith(f"{root}/") for place in places):
                return root, opened
        return None


class _OldSource(SourceFileLoader):
    """Loads source that is older than a time, and no bytecode: that beside it may be forged."""

    def __init__(self, fullname: str, path: str, opened: int) -> None:
        super().__init__(fullname, path)
        self._opened = opened

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        with open(path, "rb") as file:
            source = file.read()
            # After the reading: what was written meanwhile shows.
            if os.fstat(file.fileno()).st_ctime_ns >= self._opened:
                raise WrittenLater(f"{fullname} is not imported: {path} is being written")
        return self.source_to_code(source, path)


_guard = ImportGuard()
"""One for the process, as ``sys.meta_path`` is; not on it before a directory is opened."""


def guard_imports(policy: ExecutionPolicy) -> None:
    """Import nothing any more that is written from now on where this policy lets commands write."""
    if policy.protect_host:
        guard_directories((policy.directory, *policy.writable))


def guard_directories(directories: Iterable[Path]) -> None:
    """Import nothing any more that is written into these from now on."""
    _guard.add(directories)


def _now() -> int:
    """The clock that the kernel dates changes of files by."""
    try:
        return time.clock_gettime_ns(_COARSE_CLOCK)
    except (AttributeError, OSError):
        return time.time_ns()


def _is_older(path: str, root: str, opened: int) -> bool:
    """Whether a file, and each symlink on the way to it, was last changed before that time.

    By the time of the last change, which no program can set.
    """
    try:
        if os.stat(path).st_ctime_ns >= opened:
            return False
        step = os.path.abspath(path)
        while step not in (root, "/"):
            found = os.lstat(step)
            if os.path.islink(step) and found.st_ctime_ns >= opened:
                return False
            step = os.path.dirname(step)
    except OSError:
        return False
    return True
