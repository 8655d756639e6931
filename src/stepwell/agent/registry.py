"""Agent specs by name, from code and from files. One bad file never hides the others."""

import os
from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from pathlib import Path
from typing import cast

from msgspec import Struct

from stepwell.agent.spec import AgentSpec
from stepwell.agent.spec_parser import FORMATS, AgentSpecParser, ParsedSpec
from stepwell.agent.yaml_values import DefinitionError
from stepwell.errors import AgentNotFoundError, ConfigurationError
from stepwell.parameters import check_flag, check_texts

MAX_FILES = 1000
"""Definitions that are read from one directory."""

MAX_DEPTH = 16
"""Directories below the one that is loaded."""

MAX_ENTRIES = 20_000
"""Files and directories that are looked at."""

OWN_DIRECTORY = Path(".stepwell", "agents")
CLAUDE_DIRECTORY = Path(".claude", "agents")
_NOT_AGENTS = frozenset(
    f"{name}.md" for name in ("readme", "claude", "agents", "changelog", "contributing", "license")
)
_LENIENT_BELOW = ".claude"
_KEPT_FOR_THE_HOST = (
    "an agent of the host, which an untrusted file does not replace; give it another name"
)
_Problem = tuple[Path, DefinitionError]


class FileRemark(Struct, frozen=True, kw_only=True):
    """Something to know about a file: why it was not loaded, or how it was read."""

    path: str
    message: str

    def __str__(self) -> str:
        """The path and the message in one line."""
        return f"{self.path}: {self.message}"


class AgentRegistry:
    """Agent specs by name; immutable, so every method that adds some returns a new registry.

    >>> spec = AgentSpec(name="reviewer", description="Reviews code.", system_prompt="Review it.")
    >>> AgentRegistry().register(spec).names
    ('reviewer',)
    """

    def __init__(self, specs: Iterable[AgentSpec] = ()) -> None:
        self._specs: dict[str, AgentSpec] = {}
        self._sources: dict[str, str] = {}
        self.problems: tuple[FileRemark, ...] = ()
        """The files that could not be loaded, and why."""
        self.notes: tuple[FileRemark, ...] = ()
        """What was repaired, replaced or left out in files that were loaded."""
        for spec in _listed(specs):
            if not isinstance(spec, AgentSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(f"{spec!r:.80} is not an AgentSpec; write AgentSpec(...)")
            self._specs[spec.name] = spec

    @property
    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(self._specs))

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        """The specs, sorted by name."""
        return tuple(self._specs[name] for name in self.names)

    def __contains__(self, name: object) -> bool:
        """Whether the name is known."""
        return name in self._specs

    def __len__(self) -> int:
        """How many there are."""
        return len(self._specs)

    def get(self, name: str) -> AgentSpec:
        """The spec of that name; raises ``AgentNotFoundError``."""
        spec = self._specs.get(name)
        if spec is None:
            raise AgentNotFoundError(name, self.names)
        return spec

    def source_of(self, name: str) -> str | None:
        """The file that the spec of that name came from; None for one from code."""
        return self._sources.get(self.get(name).name)

    def register(self, *specs: AgentSpec) -> "AgentRegistry":
        """A registry that also knows these; a later spec replaces one of the same name."""
        registry = AgentRegistry([*self._specs.values(), *specs])
        named = {spec.name for spec in specs}
        registry._sources = {name: at for name, at in self._sources.items() if name not in named}
        registry.problems, registry.notes = self.problems, self.notes
        return registry

    def load_file(self, path: str | Path, *, strict: bool | None = None) -> "AgentRegistry":
        """A registry that also knows the agent in this file; raises ``DefinitionError``.

        Files below ``.claude`` are read leniently and all others strictly, unless told.
        """
        path = Path(path)
        return self._with([(path, _parsed(path, strict))], [])

    def load_directory(
        self,
        path: str | Path,
        *,
        recursive: bool = False,
        strict: bool | None = None,
        trusted: bool = True,
        allowed_models: Collection[str] = (),
    ) -> "AgentRegistry":
        """A registry that also knows the agents of a directory, read in the order of their paths.

        What is wrong with a file is told in ``problems``. Files that are not ``trusted`` choose
        no model but the allowed ones, links out of the directory are not followed, and an agent
        that was registered in code stays as it is.
        """
        check_flag(trusted, "trusted")
        allowed = check_texts(allowed_models, "allowed_models")
        directory = Path(path)
        if not os.path.isdir(directory):
            raise DefinitionError(f"{directory}: is not a directory")
        loaded: list[tuple[Path, ParsedSpec]] = []
        files, problems = _files(directory, recursive=recursive)
        for file in files[:MAX_FILES]:
            try:
                parsed = _parsed(file, strict, beneath=None if trusted else directory)
                loaded.append((file, parsed if trusted else _untrusted(parsed, allowed)))
            except DefinitionError as error:
                problems.append((file, error))
        if len(files) > MAX_FILES:
            error = DefinitionError(f"holds {len(files)} definitions; only {MAX_FILES} were read")
            problems.append((directory, error))
        return self._with(loaded, problems)

    def discover(
        self,
        project: str | Path = ".",
        *,
        user_home: str | Path | None = None,
        packages: Iterable[str | Path] = (),
        trust_project: bool = False,
        allowed_models: Collection[str] = (),
    ) -> "AgentRegistry":
        """A registry that also knows the agents in the usual places; a later place wins.

        These are ``.stepwell/agents`` of the user, the directories that packages bring, and
        ``.claude/agents`` and ``.stepwell/agents`` of the project. The project's files are not
        trusted unless told: they choose no model but the allowed ones, and replace no agent that
        was registered in code. A package or a project that is no directory is told in ``notes``.
        """
        home = Path.home() if user_home is None else Path(user_home)
        check_flag(trust_project, "trust_project")
        check_texts(allowed_models, "allowed_models")
        if isinstance(packages, str | Path):
            raise ConfigurationError(f"packages wants several; write packages=({packages!r},)")
        brought = tuple(map(Path, packages))
        registry = self._with_notes_on((*brought, Path(project)))
        for directory in (home / OWN_DIRECTORY, *brought):
            if os.path.isdir(directory):
                registry = registry.load_directory(directory, recursive=True)
        for name in (CLAUDE_DIRECTORY, OWN_DIRECTORY):
            directory = Path(project) / name
            if not os.path.isdir(directory):
                continue
            try:
                if not trust_project:
                    _refuse_link_out_of(Path(project), directory)
                registry = registry.load_directory(
                    directory, recursive=True, trusted=trust_project, allowed_models=allowed_models
                )
            except DefinitionError as error:
                registry = registry._with([], [(directory, error)])
        return registry

    def _with_notes_on(self, places: Iterable[Path]) -> "AgentRegistry":
        registry = self.register()
        message = "is not a directory, so no agents were looked for in it"
        missing = (place for place in places if not os.path.isdir(place))
        notes = (FileRemark(path=str(place), message=message) for place in missing)
        registry.notes = (*self.notes, *notes)
        return registry

    def _with(
        self,
        loaded: Iterable[tuple[Path, ParsedSpec]],
        problems: Iterable[_Problem],
    ) -> "AgentRegistry":
        registry = self.register()
        notes, faults = list(self.notes), list(self.problems)
        for path, parsed in loaded:
            name, at = parsed.spec.name, str(path)
            said = list(parsed.notes)
            is_the_hosts = name in registry and name not in registry._sources
            if is_the_hosts and not parsed.spec.trusted:
                message = f"{name!r} is {_KEPT_FOR_THE_HOST}"
                faults.append(FileRemark(path=at, message=message))
                continue
            if name in registry:
                said.append(f"replaces {name!r} of {registry._sources.get(name, 'the host')}")
            notes += [FileRemark(path=at, message=note) for note in said]
            registry._specs[name], registry._sources[name] = parsed.spec, at
        for path, error in problems:
            # People keep such files next to their agents; that these are none is no problem.
            found = notes if path.name.lower() in _NOT_AGENTS else faults
            found.append(FileRemark(path=str(path), message=_without(path, error)))
        registry.problems, registry.notes = tuple(faults), tuple(notes)
        return registry


def _listed(specs: object) -> Iterable[AgentSpec]:
    if isinstance(specs, AgentSpec):
        raise ConfigurationError(f"{specs.name!r} is one spec alone; write AgentRegistry([spec])")
    if isinstance(specs, str | Path):
        loads = "load_file" if Path(specs).suffix.lower() in FORMATS else "load_directory"
        raise ConfigurationError(
            f"{str(specs)!r} is a path, and AgentRegistry(...) takes specs; write "
            f"AgentRegistry().{loads}({str(specs)!r})"
        )
    if not isinstance(specs, Iterable):
        raise ConfigurationError(
            f"{specs!r:.80} is no list of specs; write AgentRegistry([spec, ...])"
        )
    return cast("Iterable[AgentSpec]", specs)


def _parsed(path: Path, strict: bool | None, *, beneath: Path | None = None) -> ParsedSpec:
    is_strict = _LENIENT_BELOW not in path.absolute().parts if strict is None else strict
    return AgentSpecParser(strict=is_strict).parse_file_with_notes(path, beneath=beneath)


def _without(path: Path, error: DefinitionError) -> str:
    return str(error).removeprefix(f"{path}: ")


def _untrusted(parsed: ParsedSpec, allowed_models: Collection[str]) -> ParsedSpec:
    spec, note = parsed.spec.as_untrusted(allowed_models)
    return ParsedSpec(spec=spec, notes=parsed.notes if note is None else (*parsed.notes, note))


def _files(directory: Path, *, recursive: bool) -> tuple[list[Path], list[_Problem]]:
    """The definitions in a directory by their paths, without hidden ones and linked directories,
    and what could not be looked at. What is near the top is found first."""
    found: list[Path] = []
    problems: list[_Problem] = []
    too_deep: list[Path] = []
    ahead, here, left = deque([(directory, 0)]), directory, MAX_ENTRIES
    while ahead and left >= 0:
        here, depth = ahead.popleft()
        try:
            with os.scandir(here) as entries:
                looked_at = list(islice(entries, left + 1))
        except OSError as error:
            problems.append((here, DefinitionError(f"can't be read: {error.strerror}")))
            continue
        left -= len(looked_at)
        files, below = _sorted_out(looked_at)
        found += files
        if recursive and depth == MAX_DEPTH:
            too_deep += below
        elif recursive:
            ahead.extend((path, depth + 1) for path in below)
    faults: list[str] = []
    if too_deep:
        faults.append(f"goes more than {MAX_DEPTH} directories deep; left out: {_told(too_deep)}")
    if left < 0:
        rest = _told([here, *(path for path, _ in ahead)])
        faults.append(f"holds more than {MAX_ENTRIES:,} entries; left out: parts of {rest}")
    return sorted(found), [*problems, *((directory, DefinitionError(said)) for said in faults)]


def _sorted_out(entries: Iterable["os.DirEntry[str]"]) -> tuple[list[Path], list[Path]]:
    """The definitions and the directories among entries."""
    files: list[Path] = []
    directories: list[Path] = []
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if not _is_directory(entry):
            files.append(Path(entry.path))
        elif not entry.is_symlink():
            directories.append(Path(entry.path))
    return [path for path in files if path.suffix.lower() in FORMATS], directories


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # A loop of links; reading it tells.
        return False


def _told(paths: list[Path]) -> str:
    more = len(paths) - 1
    kind = "directory" if more == 1 else "directories"
    return f"{paths[0]}, and {more} more {kind}" if more else str(paths[0])


def _refuse_link_out_of(directory: Path, path: Path) -> None:
    try:
        is_inside = path.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError):
        is_inside = False
    if not is_inside:
        raise DefinitionError(f"is a link out of {directory}; it is not followed")
