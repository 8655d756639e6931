"""Keeps this process from importing what a tool or command wrote into a writable directory.

The directory of an application is often on ``sys.path`` and also the agent's working directory. A
module written there after the directory was opened to tools is not imported: the next one on the
path is, and without one the import fails.
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
_MAX_ROOTS = 256


class WrittenLaterError(ImportError):
    """Raised for a module that was written to a directory after it was opened to tools."""


class ImportGuard(MetaPathFinder):
    """The first finder on ``sys.meta_path``: asks the others and checks what they find."""

    def __init__(self) -> None:
        self._guarded_since: dict[str, int] = {}

    def add(self, roots: Iterable[Path]) -> None:
        """Guard these directories from now on; those guarded already keep their time."""
        # A new dictionary each time, because another thread may be using the old one.
        opened = {str(root): _now() for root in roots} | self._guarded_since
        if len(opened) > _MAX_ROOTS:
            # Nothing can be imported from removed directories.
            opened = {root: at for root, at in opened.items() if os.path.isdir(root)}
        self._guarded_since = opened
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find, unless it was written later."""
        spec = self._find_with_others(fullname, path, target)
        if spec is None or (root := self._written_later(spec)) is None:
            return spec
        entries = sys.path if path is None else path
        outside = [entry for entry in entries if self._root_of(entry or ".") is None]
        elsewhere = PathFinder.find_spec(fullname, outside, target)
        if elsewhere is None:
            raise WrittenLaterError(
                f"{fullname} is not imported: {spec.origin} was written after {root} was opened "
                "to the tools of an agent. Check the file and restart this process, keep the "
                "application's code out of that directory, or set protect_host=False in the policy",
                name=fullname,
                path=spec.origin,
            )
        return elsewhere

    def _find_with_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        finders = list(sys.meta_path)
        # Only those after this one: two finders that ask all others would never end.
        for finder in finders[finders.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def _written_later(self, spec: ModuleSpec) -> str | None:
        """Return the guarded directory of a module that was written later, or None."""
        # For a module in an archive, the archive is the file.
        location: str = getattr(spec.loader, "archive", spec.origin) or ""
        guarded = self._root_of(location) if spec.has_location and location else None
        if guarded is None or host_path_of(os.path.realpath(location)) is not None:
            return None
        root, opened = guarded
        if not _is_older(location, root, opened):
            return root
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _OlderSourceLoader(spec.loader.name, spec.loader.path, opened)
            spec.cached = None
        return None

    def _root_of(self, path: str) -> tuple[str, int] | None:
        """Return the guarded directory of a path, and since when it is guarded."""
        places = {os.path.abspath(path), os.path.realpath(path)}
        for root, opened in self._guarded_since.items():
            if any(place == root or place.startswith(f"{root}/") for place in places):
                return root, opened
        return None


class _OlderSourceLoader(SourceFileLoader):
    """Loads source that is older than a given time. Ignores bytecode, which may be forged."""

    def __init__(self, fullname: str, path: str, opened: int) -> None:
        super().__init__(fullname, path)
        self._guarded_since = opened

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        with open(path, "rb") as file:
            source = file.read()
            # Checked after reading, so that a concurrent write is detected.
            if os.fstat(file.fileno()).st_ctime_ns >= self._guarded_since:
                raise WrittenLaterError(f"{fullname} is not imported: {path} is being written")
        return self.source_to_code(source, path)


_guard = ImportGuard()
"""One per process, like ``sys.meta_path``; installed when a directory is first guarded."""


def guard_imports(policy: ExecutionPolicy) -> None:
    """Refuse imports of what is written from now on to the writable paths of the policy."""
    if policy.protect_host:
        guard_directories((policy.directory, *policy.writable))


def guard_directories(directories: Iterable[Path]) -> None:
    """Refuse imports of what is written to these directories from now on."""
    _guard.add(directories)


def _now() -> int:
    """Return the time of the clock that the kernel uses for file changes."""
    try:
        return time.clock_gettime_ns(_COARSE_CLOCK)
    except (AttributeError, OSError):
        return time.time_ns()


def _is_older(path: str, root: str, opened: int) -> bool:
    """Return whether a file and each symlink on its path was last changed before that time.

    Uses the ctime, which no program can set.
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
