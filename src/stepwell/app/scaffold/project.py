"""Writes the files of a new project: all of them or none, and over nothing that is there."""

import os
from collections.abc import Iterable
from pathlib import Path

from stepwell.errors import ConfigurationError

_FILES = Path(__file__).parent / "files"
_SUFFIX = ".txt"
"""Of the files here, so that no tool takes them for modules of Stepwell."""


def project_files() -> dict[str, str]:
    """The text of each file, by its path in the project.

    >>> "agent.py" in project_files()
    True
    """
    found = sorted(path for path in _FILES.rglob(f"*{_SUFFIX}") if path.is_file())
    return {
        path.relative_to(_FILES).as_posix().removesuffix(_SUFFIX): path.read_text(encoding="utf-8")
        for path in found
    }


def make_project(folder: Path, *, force: bool = False) -> tuple[str, ...]:
    """Make the project in that folder; the paths of its files. Raises ``ConfigurationError``, and
    writes nothing, if a file is there already and ``force`` is not set."""
    files = project_files()
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file; name a folder, or one that is not there yet")
    there = [name for name in files if os.path.lexists(folder / name)]
    if there and not force:
        raise ConfigurationError(
            f"{folder} has files of these names already: {', '.join(there)}. Nothing was written; "
            "name another folder, or write over them with --force"
        )
    if linked := _first_link(folder, files):
        raise ConfigurationError(
            f"{linked} is a link, and what is written there would be elsewhere. Nothing was "
            "written; name another folder, or remove the link"
        )
    try:
        for name, text in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            # What is there is replaced, not written into: it may be a link, or have other names.
            target.unlink(missing_ok=True)
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigurationError(f"the project can't be made in {folder}: {error}") from None
    return tuple(files)


def _first_link(folder: Path, files: Iterable[str]) -> Path | None:
    """A folder of the project that is a link to another place, if there is one."""
    parents = (parent for name in files for parent in Path(name).parents)
    return next((folder / one for one in parents if one.name and (folder / one).is_symlink()), None)
