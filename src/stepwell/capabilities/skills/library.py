"""Finds skills in directories. A broken file never hides the others."""

import os
from collections.abc import Iterator
from functools import cached_property
from os import PathLike
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from stepwell.capabilities.skills.skill import Skill, SkillSummary
from stepwell.capabilities.skills.skill_fields import ParsedSkill, parse_skill
from stepwell.capabilities.skills.skill_root import SkillRoot
from stepwell.errors import ConfigurationError, StepwellError
from stepwell.parameters import check_flag, check_integer
from stepwell.specs.front_matter import DefinitionError, read_document
from stepwell.specs.registry import FileRemark

SKILL_FILE = "SKILL.md"
MAX_SKILLS = 1000
"""Limit of skills read from one root."""

DEFAULT_MAX_BYTES = 256 * 1024


class SkillNotFoundError(StepwellError, LookupError):
    """Raised when the library has no skill with that name."""

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
    """The skills in ``<root>/<directory>/SKILL.md`` of each root. A root may be missing.

    The roots are read once, on first use; create a new library to see later changes. If two skills
    have the same name, the first wins. The text of a skill is read on the first ``get``. Symlinks
    that lead out of a root are refused unless ``trust_links`` is set.

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
                    f"a skill root must be a path, got {root!r:.80}. Write SkillLibrary('./skills')"
                )
        check_integer(max_file_bytes, "max_file_bytes", least=1)
        check_integer(max_resource_bytes, "max_resource_bytes", least=1)
        check_flag(trust_links, "trust_links")
        self._roots = tuple(SkillRoot(root, trusts_links=trust_links) for root in roots)
        self._max_file_bytes = max_file_bytes
        self._max_resource_bytes = max_resource_bytes
        self._loaded: dict[str, Skill] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all skills, sorted."""
        return tuple(sorted(self._index.entries))

    @property
    def summaries(self) -> tuple[SkillSummary, ...]:
        """A summary of each skill, without loading it, sorted by name."""
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
        """Remarks on what was repaired, skipped or unusual."""
        return self._index.notes

    def __contains__(self, name: object) -> bool:
        """Return whether there is a skill with this name."""
        return name in self._index.entries

    def __len__(self) -> int:
        """Return the number of skills."""
        return len(self._index.entries)

    def get(self, name: str) -> Skill:
        """Return the skill with that name, the same object each time.

        Raises ``SkillNotFoundError``, or ``DefinitionError`` if its file broke since the library
        was read.
        """
        known = self._loaded.get(name)
        if known is not None:
            return known
        entry = self._index.entries.get(name)
        if entry is None:
            raise SkillNotFoundError(name, self.names)
        path = entry.summary.path
        try:
            parsed = self._read(entry.root, path)
        except DefinitionError as error:
            raise DefinitionError(f"{path}: {error}") from error
        # Two threads may read it at once; both get the copy that was stored first.
        return self._loaded.setdefault(name, replace(parsed.skill, name=name))

    def read_resource(self, skill: Skill, resource: str) -> str:
        """Return the text of one of the skill's resources. Raises ``DefinitionError``."""
        path_in_skill = resource.strip().removeprefix("./")
        if path_in_skill not in skill.resources or skill.directory is None:
            listed = ", ".join(skill.resources) or "(none)"
            raise DefinitionError(
                f"the skill {skill.name!r} has no resource {resource!r:.200}; resources: {listed}"
            )
        entry = self._index.entries.get(skill.name)
        if entry is None:
            raise SkillNotFoundError(skill.name, self.names)
        try:
            return entry.root.text(skill.directory / path_in_skill, self._max_resource_bytes)
        except DefinitionError as error:
            raise DefinitionError(f"the resource {path_in_skill!r} {error}") from error

    @cached_property
    def _index(self) -> _Index:
        entries: dict[str, _Entry] = {}
        problems: list[FileRemark] = []
        notes: list[FileRemark] = []
        for root in self._roots:
            for path in _skill_files(root.path, problems, notes):
                try:
                    parsed = self._read(root, path)
                except DefinitionError as error:
                    problems.append(FileRemark(path=str(path), message=str(error)))
                    continue
                name = parsed.skill.name
                remarks = list(parsed.notes)
                if name in entries:
                    first = entries[name].summary.path
                    remarks = [
                        f"not used: {first} has the name {name!r} as well and was found first"
                    ]
                else:
                    entries[name] = _Entry(_summary(parsed.skill, path), root)
                notes += [FileRemark(path=str(path), message=note) for note in remarks]
        return _Index(entries, tuple(problems), tuple(notes))

    def _read(self, root: SkillRoot, path: Path) -> ParsedSkill:
        document = read_document(root.text(path, self._max_file_bytes))
        parsed = parse_skill(document, path.parent.name)
        resources, notes = root.resources(path.parent, parsed.named_resources)
        skill = replace(parsed.skill, path=path, resources=tuple(resources))
        return replace(parsed, skill=skill, notes=(*parsed.notes, *notes))


def _summary(skill: Skill, path: Path) -> SkillSummary:
    return SkillSummary(
        name=skill.name,
        description=skill.description,
        path=path,
        user_invocable=skill.user_invocable,
        disable_model_invocation=skill.disable_model_invocation,
        is_fork=skill.is_fork,
    )


def _skill_files(root: Path, problems: list[FileRemark], notes: list[FileRemark]) -> Iterator[Path]:
    """Yield the skill files in a root, sorted by directory name."""
    count = 0
    for directory in sorted(_directories(root, problems, notes)):
        path = Path(directory, SKILL_FILE)
        if not os.path.lexists(path):
            _note_wrong_case(path, notes)
            continue
        count += 1
        if count > MAX_SKILLS:
            message = f"contains more than {MAX_SKILLS} skills; only the first were read"
            problems.append(FileRemark(path=str(root), message=message))
            return
        yield path


def _directories(root: Path, problems: list[FileRemark], notes: list[FileRemark]) -> Iterator[str]:
    location = str(root)
    try:
        with os.scandir(root) as found:
            entries = list(found)
    except OSError as error:
        if os.path.isfile(root):
            problems.append(FileRemark(path=location, message=_file_as_root(root)))
        elif isinstance(error, FileNotFoundError | NotADirectoryError):
            notes.append(FileRemark(path=location, message="does not exist"))
        else:
            problems.append(_unreadable(root, error))
        return
    if any(entry.name == SKILL_FILE for entry in entries):
        advice = f"pass its parent directory: {root.parent}"
        message = f"is the directory of one skill; {advice}"
        problems.append(FileRemark(path=location, message=message))
    for entry in entries:
        try:
            if entry.is_dir():
                yield entry.path
        except OSError as error:  # a symlink loop
            problems.append(_unreadable(entry.path, error))


def _file_as_root(path: Path) -> str:
    advice = f": {path.parent.parent}" if path.name == SKILL_FILE else ""
    return f"is a file; pass the directory that contains the directories of the skills{advice}"


def _unreadable(path: str | Path, error: OSError) -> FileRemark:
    return FileRemark(path=str(path), message=f"can't be read: {error.strerror}")


def _note_wrong_case(path: Path, notes: list[FileRemark]) -> None:
    for name in ("skill.md", "Skill.md", "SKILL.MD", "skills.md", "SKILLS.md"):
        if os.path.lexists(path.with_name(name)):
            message = f"is ignored; rename it to {SKILL_FILE}"
            notes.append(FileRemark(path=str(path.with_name(name)), message=message))
