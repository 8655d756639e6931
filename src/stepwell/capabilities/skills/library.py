"""Skills by name, found in directories. One broken file never hides the others."""

import os
from collections.abc import Iterator
from functools import cached_property
from os import PathLike
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from stepwell.agent.front_matter import DefinitionError, read_document
from stepwell.agent.registry import FileRemark
from stepwell.capabilities.skills.reading import SkillRoot
from stepwell.capabilities.skills.skill import Skill, SkillSummary
from stepwell.capabilities.skills.skill_fields import ReadSkill, skill_of
from stepwell.errors import ConfigurationError, StepwellError

SKILL_FILE = "SKILL.md"
MAX_SKILLS = 1000
"""Skills that are read from one root."""

DEFAULT_MAX_BYTES = 256 * 1024


class SkillNotFoundError(StepwellError, LookupError):
    """No skill of the library has that name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        listed = ", ".join(known) or "(none)"
        super().__init__(f"no skill is called {name!r:.100}; known: {listed}")
        self.name = name


class _Entry(Struct, frozen=True):
    summary: SkillSummary
    root: SkillRoot


class _Index(Struct, frozen=True):
    entries: dict[str, _Entry]
    problems: tuple[FileRemark, ...]
    notes: tuple[FileRemark, ...]


class SkillLibrary:
    """The skills in ``<root>/<directory>/SKILL.md`` of each root; a root may be missing.

    The roots are read when they are first needed, and then never again: make a new library to see
    later changes. Of two skills with one name the first wins. The text of a skill is read when
    ``get`` first asks for it. Symlinks out of a root are refused unless ``trust_links``.

    >>> SkillLibrary().names
    ()
    """

    def __init__(
        self,
        *roots: str | PathLike[str],
        max_file_bytes: int = DEFAULT_MAX_BYTES,
        max_resource_bytes: int = DEFAULT_MAX_BYTES,
        trust_links: bool = False,
    ) -> None:
        for root in roots:
            if not isinstance(root, str | PathLike) or not os.fspath(root):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(
                    f"a root of skills is a path, got {root!r:.80}; write SkillLibrary('./skills')"
                )
        for name, amount in (
            ("max_file_bytes", max_file_bytes),
            ("max_resource_bytes", max_resource_bytes),
        ):
            if type(amount) is not int or amount < 1:
                raise ConfigurationError(f"{name} must be 1 or more, got {amount!r}")
        if type(trust_links) is not bool:
            raise ConfigurationError(f"trust_links is True or False, not {trust_links!r}")
        self._roots = tuple(SkillRoot(root, trusts_links=trust_links) for root in roots)
        self._max_file_bytes = max_file_bytes
        self._max_resource_bytes = max_resource_bytes
        self._loaded: dict[str, Skill] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(self._index.entries))

    @property
    def summaries(self) -> tuple[SkillSummary, ...]:
        """What is known of each skill without loading it, sorted by name."""
        return tuple(self._index.entries[name].summary for name in self.names)

    @property
    def skills(self) -> tuple[Skill, ...]:
        """All skills, loaded, sorted by name."""
        return tuple(self.get(name) for name in self.names)

    @property
    def problems(self) -> tuple[FileRemark, ...]:
        """The files that could not be loaded, and why."""
        return self._index.problems

    @property
    def notes(self) -> tuple[FileRemark, ...]:
        """What was repaired, passed over or odd in what was found."""
        return self._index.notes

    def __contains__(self, name: object) -> bool:
        """Whether the name is known."""
        return name in self._index.entries

    def __len__(self) -> int:
        """How many there are."""
        return len(self._index.entries)

    def get(self, name: str) -> Skill:
        """The skill of that name, the same object each time; raises ``SkillNotFoundError``.

        Raises ``DefinitionError`` if its file was broken since the library was read.
        """
        known = self._loaded.get(name)
        if known is not None:
            return known
        entry = self._index.entries.get(name)
        if entry is None:
            raise SkillNotFoundError(name, self.names)
        path = entry.summary.path
        try:
            read = self._read(entry.root, path)
        except DefinitionError as error:
            raise DefinitionError(f"{path}: {error}") from error
        # Two threads may read it at once; both get the one that was kept first.
        return self._loaded.setdefault(name, replace(read.skill, name=name))

    def read_resource(self, skill: Skill, resource: str) -> str:
        """The text of one of the skill's resources; raises ``DefinitionError``."""
        wanted = resource.strip().removeprefix("./")
        if wanted not in skill.resources or skill.directory is None:
            listed = ", ".join(skill.resources) or "(none)"
            raise DefinitionError(
                f"the skill {skill.name!r} has no resource {resource!r:.200}; it has: {listed}"
            )
        entry = self._index.entries.get(skill.name)
        if entry is None:
            raise SkillNotFoundError(skill.name, self.names)
        try:
            return entry.root.text(skill.directory / wanted, self._max_resource_bytes)
        except DefinitionError as error:
            raise DefinitionError(f"the resource {wanted!r} {error}") from error

    @cached_property
    def _index(self) -> _Index:
        entries: dict[str, _Entry] = {}
        problems: list[FileRemark] = []
        notes: list[FileRemark] = []
        for root in self._roots:
            for path in _found(root.path, problems, notes):
                try:
                    read = self._read(root, path)
                except DefinitionError as error:
                    problems.append(FileRemark(path=str(path), message=str(error)))
                    continue
                name = read.skill.name
                said = list(read.notes)
                if name in entries:
                    first = entries[name].summary.path
                    said = [f"not used: {first} is called {name!r} as well, and was found first"]
                else:
                    entries[name] = _Entry(_summary(read.skill, path), root)
                notes += [FileRemark(path=str(path), message=note) for note in said]
        return _Index(entries, tuple(problems), tuple(notes))

    def _read(self, root: SkillRoot, path: Path) -> ReadSkill:
        document = read_document(root.text(path, self._max_file_bytes))
        read = skill_of(document, path.parent.name)
        resources, notes = root.resources(path.parent, read.named_resources)
        skill = replace(read.skill, path=path, resources=tuple(resources))
        return replace(read, skill=skill, notes=(*read.notes, *notes))


def _summary(skill: Skill, path: Path) -> SkillSummary:
    return SkillSummary(
        name=skill.name,
        description=skill.description,
        path=path,
        user_invocable=skill.user_invocable,
        disable_model_invocation=skill.disable_model_invocation,
        is_fork=skill.is_fork,
    )


def _found(root: Path, problems: list[FileRemark], notes: list[FileRemark]) -> Iterator[Path]:
    """The files of skills in a root, by the names of their directories."""
    count = 0
    for directory in sorted(_directories(root, problems, notes)):
        path = Path(directory, SKILL_FILE)
        if not os.path.lexists(path):
            _note_misspelt(path, notes)
            continue
        count += 1
        if count > MAX_SKILLS:
            message = f"holds more than {MAX_SKILLS} skills; only the first were read"
            problems.append(FileRemark(path=str(root), message=message))
            return
        yield path


def _directories(root: Path, problems: list[FileRemark], notes: list[FileRemark]) -> Iterator[str]:
    place = str(root)
    try:
        with os.scandir(root) as found:
            entries = list(found)
    except OSError as error:
        if os.path.isfile(root):
            problems.append(FileRemark(path=place, message=_file_as_root(root)))
        elif isinstance(error, FileNotFoundError | NotADirectoryError):
            notes.append(FileRemark(path=place, message="does not exist"))
        else:
            problems.append(_unreadable(root, error))
        return
    if any(entry.name == SKILL_FILE for entry in entries):
        instead = f"give the directory that it lies in: {root.parent}"
        message = f"is the directory of one skill; {instead}"
        problems.append(FileRemark(path=place, message=message))
    for entry in entries:
        try:
            if entry.is_dir():
                yield entry.path
        except OSError as error:  # a loop of links
            problems.append(_unreadable(entry.path, error))


def _file_as_root(path: Path) -> str:
    instead = f": {path.parent.parent}" if path.name == SKILL_FILE else ""
    return f"is a file; give the directory in which the directories of skills lie{instead}"


def _unreadable(path: str | Path, error: OSError) -> FileRemark:
    return FileRemark(path=str(path), message=f"can't be read: {error.strerror}")


def _note_misspelt(path: Path, notes: list[FileRemark]) -> None:
    for name in ("skill.md", "Skill.md", "SKILL.MD", "skills.md", "SKILLS.md"):
        if os.path.lexists(path.with_name(name)):
            message = f"is not read; call it {SKILL_FILE}"
            notes.append(FileRemark(path=str(path.with_name(name)), message=message))
