"""Reads files of skills beneath their root. A symlink that leads out of the root is refused, also
one that appears between the look and the opening, unless the host trusts links.
"""

import os
import stat
from os import PathLike
from pathlib import Path

from stepwell.agent.front_matter import DefinitionError, decoded

RESOURCE_DIRECTORIES = ("scripts", "references", "assets", "examples")
MAX_RESOURCES = 200

_NOTHING = 0
_READ = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", _NOTHING)
    | getattr(os, "O_NOCTTY", _NOTHING)
    | getattr(os, "O_CLOEXEC", _NOTHING)
)
"""Never waits for the other end of a pipe."""
_NOFOLLOW = getattr(os, "O_NOFOLLOW", _NOTHING)
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", _NOTHING) | getattr(os, "O_CLOEXEC", _NOTHING)


class SkillRoot:
    """A directory of skills. Raises ``DefinitionError`` for what can't be read."""

    def __init__(self, path: str | PathLike[str], *, trusts_links: bool) -> None:
        self.path = Path(os.path.abspath(path))
        self._trusts_links = trusts_links

    def text(self, file: Path, max_bytes: int) -> str:
        """The text of a regular UTF-8 file beneath the root."""
        try:
            descriptor = self._opened(file)
            with open(descriptor, "rb") as opened:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise DefinitionError("is not a regular file")
                data = opened.read(max_bytes + 1)
        except OSError as error:
            raise DefinitionError(f"can't be read: {error.strerror}") from None
        if len(data) > max_bytes:
            raise DefinitionError(f"is larger than {max_bytes:,} bytes")
        return decoded(data)

    def _opened(self, file: Path) -> int:
        real = os.path.realpath(file)
        if self._trusts_links:
            return os.open(real, _READ)
        root = os.path.realpath(self.path)
        names = self._names_beneath(root, real)
        here = os.open(root, _DIRECTORY)
        try:
            for name in names[:-1]:
                below = os.open(name, _DIRECTORY | _NOFOLLOW, dir_fd=here)
                os.close(here)
                here = below
            return os.open(names[-1], _READ | _NOFOLLOW, dir_fd=here)
        finally:
            os.close(here)

    def _names_beneath(self, root: str, real: str) -> tuple[str, ...]:
        try:
            names = Path(real).relative_to(root).parts
        except ValueError:
            names = ()
        if not names:
            raise DefinitionError(
                f"is a link out of {self.path}, which is not followed; SkillLibrary(..., "
                "trust_links=True) follows such links"
            )
        return names

    def resources(self, directory: Path, named: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """The resources of a skill, by their paths from its directory on, and notes on those that
        it has not."""
        found: list[str] = []
        for name in RESOURCE_DIRECTORIES:
            found += [f"{name}/{file}" for file in self._files(directory / name)]
        notes: list[str] = []
        for entry in named:
            path = entry.removeprefix("./")
            if path in found:
                continue
            if self._is_resource(directory, path):
                found.append(path)
            else:
                notes.append(f"the resource {entry!r:.120} is no file in its directory")
        if len(found) > MAX_RESOURCES:
            notes.append(f"has {len(found)} resources; only the first {MAX_RESOURCES} are listed")
        return found[:MAX_RESOURCES], notes

    def _files(self, directory: Path) -> list[str]:
        if directory.is_symlink() and not self._trusts_links:
            return []
        try:
            with os.scandir(directory) as entries:
                return sorted(entry.name for entry in entries if self._is_listed(entry))
        except OSError:
            return []

    def _is_listed(self, entry: "os.DirEntry[str]") -> bool:
        if entry.name.startswith(".") or not entry.name.isprintable():
            return False
        return entry.is_file(follow_symlinks=self._trusts_links)

    def _is_resource(self, directory: Path, path: str) -> bool:
        """Whether a path that a file gives names a file beneath the skill's own directory."""
        inside = os.path.realpath(directory)
        real = os.path.realpath(directory / path)
        is_within = self._trusts_links or real.startswith(inside + os.sep)
        is_plain = not path.startswith("/") and ".." not in Path(path).parts and path.isprintable()
        return is_plain and is_within and os.path.isfile(real)
