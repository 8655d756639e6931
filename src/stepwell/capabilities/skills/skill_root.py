"""Reads the files of skills beneath their root. A symlink that leads out of the root is refused,
even if it appears between check and open, unless the host trusts links.
"""

import os
from os import PathLike
from pathlib import Path

from stepwell.specs.front_matter import DefinitionError, LinkOutError, read_file

RESOURCE_DIRECTORIES = ("scripts", "references", "assets", "examples")
MAX_RESOURCES = 200


class SkillRoot:
    """A directory of skills. Raises ``DefinitionError`` for files that can't be read."""

    def __init__(self, path: str | PathLike[str], *, trusts_links: bool) -> None:
        self.path = Path(os.path.abspath(path))
        self._trusts_links = trusts_links

    def text(self, file: Path, max_bytes: int) -> str:
        """Read a regular UTF-8 file beneath the root."""
        beneath = None if self._trusts_links else self.path
        try:
            return read_file(file, limit=max_bytes, beneath=beneath)
        except LinkOutError as error:
            hint = "use SkillLibrary(..., trust_links=True) to follow such links"
            raise DefinitionError(f"{error}; {hint}") from None

    def resources(self, directory: Path, named: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """Return the paths of a skill's resources relative to its directory, and notes on named
        resources that do not exist."""
        found: dict[str, None] = {}
        for name in RESOURCE_DIRECTORIES:
            found.update((f"{name}/{file}", None) for file in self._files(directory / name))
        notes: list[str] = []
        if len(named) > MAX_RESOURCES:
            notes.append(f"names {len(named):,} resources; only the first {MAX_RESOURCES} are used")
        for entry in named[:MAX_RESOURCES]:
            path = entry.removeprefix("./")
            if path in found or self._is_resource(directory, path):
                found[path] = None
            else:
                notes.append(f"the resource {entry!r:.120} is not a file in its directory")
        if len(found) > MAX_RESOURCES:
            notes.append(f"has {len(found)} resources; only the first {MAX_RESOURCES} are listed")
        return list(found)[:MAX_RESOURCES], notes

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
        try:
            return entry.is_file(follow_symlinks=self._trusts_links)
        except OSError:  # a symlink loop
            return False

    def _is_resource(self, directory: Path, path: str) -> bool:
        """Return whether a path from a skill file leads to a file beneath the skill's directory."""
        if not path or not path.isprintable() or path.startswith("/") or ".." in Path(path).parts:
            return False
        real = os.path.realpath(directory / path)
        is_within = self._trusts_links or real.startswith(os.path.realpath(directory) + os.sep)
        return is_within and os.path.isfile(real)
