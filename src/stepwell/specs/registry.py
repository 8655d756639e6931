"""A registry of agent specs from code and files. A bad file does not affect the others."""

import os
from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from pathlib import Path
from typing import cast

from msgspec import Struct

from stepwell.errors import AgentNotFoundError, ConfigurationError
from stepwell.parameters import check_flag, check_texts
from stepwell.specs.parser import FORMATS, AgentSpecParser, ParsedSpec
from stepwell.specs.spec import AgentSpec
from stepwell.specs.yaml import DefinitionError

MAX_FILES = 1000
"""Limit of definitions per directory."""

MAX_DEPTH = 16
"""Limit of nested directories."""

MAX_ENTRIES = 20_000
"""Limit of files and directories that are scanned."""

OWN_DIRECTORY = Path(".stepwell", "agents")
CLAUDE_DIRECTORY = Path(".claude", "agents")
_NOT_AGENTS = frozenset(
    f"{name}.md" for name in ("readme", "claude", "agents", "changelog", "contributing", "license")
)
_LENIENT_BELOW = ".claude"
_HOST_AGENT = "an agent of the host, which an untrusted file can't replace; rename it"
_Problem = tuple[Path, DefinitionError]


class FileRemark(Struct, frozen=True, kw_only=True):
    """A remark on a file: why it was not loaded, or how it was read."""

    path: str
    message: str

    def __str__(self) -> str:
        """The path and the message in one line."""
        return f"{self.path}: {self.message}"


class AgentRegistry:
    """An immutable table of agent specs by name. Methods that add specs return a new registry.

    >>> spec = AgentSpec(name="reviewer", description="Reviews code.", system_prompt="Review it.")
    >>> AgentRegistry().register(spec).names
    ('reviewer',)
    """

    def __init__(self, specs: Iterable[AgentSpec] = ()) -> None:
        self._specs: dict[str, AgentSpec] = {}
        self._sources: dict[str, str] = {}
        self.problems: tuple[FileRemark, ...] = ()
        """Files that could not be loaded, with the reason."""
        self.notes: tuple[FileRemark, ...] = ()
        """What was repaired, replaced or ignored in loaded files."""
        for spec in _check_specs(specs):
            if not isinstance(spec, AgentSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(f"{spec!r:.80} is not an AgentSpec; write AgentSpec(...)")
            self._specs[spec.name] = spec

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(sorted(self._specs))

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        """The specs, sorted by name."""
        return tuple(self._specs[name] for name in self.names)

    def __contains__(self, name: object) -> bool:
        """Whether the registry has a spec of that name."""
        return name in self._specs

    def __len__(self) -> int:
        """The number of specs."""
        return len(self._specs)

    def get(self, name: str) -> AgentSpec:
        """Return the spec of that name. Raises ``AgentNotFoundError``."""
        spec = self._specs.get(name)
        if spec is None:
            raise AgentNotFoundError(name, self.names)
        return spec

    def source_of(self, name: str) -> str | None:
        """Return the file that a spec came from, or None if it came from code."""
        return self._sources.get(self.get(name).name)

    def register(self, *specs: AgentSpec) -> "AgentRegistry":
        """Add specs. A later one replaces one of the same name."""
        registry = AgentRegistry([*self._specs.values(), *specs])
        named = {spec.name for spec in specs}
        registry._sources = {name: at for name, at in self._sources.items() if name not in named}
        registry.problems, registry.notes = self.problems, self.notes
        return registry

    def load_file(self, path: str | Path, *, strict: bool | None = None) -> "AgentRegistry":
        """Add the agent of a file. Raises ``DefinitionError``.

        Unless ``strict`` is given, files below ``.claude`` are read leniently and others strictly.
        """
        path = Path(path)
        return self._add([(path, _parse(path, strict))], [])

    def load_directory(
        self,
        path: str | Path,
        *,
        recursive: bool = False,
        strict: bool | None = None,
        trusted: bool = True,
        allowed_models: Collection[str] = (),
    ) -> "AgentRegistry":
        """Add the agents of a directory, in the order of their paths.

        Invalid files are listed in ``problems``. Files that are not ``trusted`` can choose only
        allowed models and can't replace agents from code, and links out of the directory are not
        followed.
        """
        check_flag(trusted, "trusted")
        allowed = check_texts(allowed_models, "allowed_models")
        directory = Path(path)
        if not os.path.isdir(directory):
            raise DefinitionError(f"{directory}: is not a directory")
        loaded: list[tuple[Path, ParsedSpec]] = []
        files, problems = _find_files(directory, recursive=recursive)
        for file in files[:MAX_FILES]:
            try:
                parsed = _parse(file, strict, beneath=None if trusted else directory)
                loaded.append((file, parsed if trusted else _as_untrusted(parsed, allowed)))
            except DefinitionError as error:
                problems.append((file, error))
        if len(files) > MAX_FILES:
            error = DefinitionError(f"has {len(files)} definitions; only {MAX_FILES} were read")
            problems.append((directory, error))
        return self._add(loaded, problems)

    def discover(
        self,
        project: str | Path = ".",
        *,
        user_home: str | Path | None = None,
        packages: Iterable[str | Path] = (),
        trust_project: bool = False,
        allowed_models: Collection[str] = (),
    ) -> "AgentRegistry":
        """Add the agents in the usual places. A later place wins.

        These are ``.stepwell/agents`` of the user, the directories of packages, and
        ``.claude/agents`` and ``.stepwell/agents`` of the project. Without ``trust_project`` the
        project's files can choose only allowed models and can't replace agents from code. Missing
        directories are listed in ``notes``.
        """
        home = Path.home() if user_home is None else Path(user_home)
        check_flag(trust_project, "trust_project")
        check_texts(allowed_models, "allowed_models")
        if isinstance(packages, str | Path):
            raise ConfigurationError(f"packages must be a list; write packages=({packages!r},)")
        brought = tuple(map(Path, packages))
        registry = self._note_missing((*brought, Path(project)))
        for directory in (home / OWN_DIRECTORY, *brought):
            if os.path.isdir(directory):
                registry = registry.load_directory(directory, recursive=True)
        for name in (CLAUDE_DIRECTORY, OWN_DIRECTORY):
            directory = Path(project) / name
            if not os.path.isdir(directory):
                continue
            try:
                if not trust_project:
                    _check_link(Path(project), directory)
                registry = registry.load_directory(
                    directory, recursive=True, trusted=trust_project, allowed_models=allowed_models
                )
            except DefinitionError as error:
                registry = registry._add([], [(directory, error)])
        return registry

    def _note_missing(self, places: Iterable[Path]) -> "AgentRegistry":
        registry = self.register()
        message = "is not a directory, so it was not searched for agents"
        missing = (place for place in places if not os.path.isdir(place))
        notes = (FileRemark(path=str(place), message=message) for place in missing)
        registry.notes = (*self.notes, *notes)
        return registry

    def _add(
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
                message = f"{name!r} is {_HOST_AGENT}"
                faults.append(FileRemark(path=at, message=message))
                continue
            if name in registry:
                said.append(f"replaces {name!r} of {registry._sources.get(name, 'the host')}")
            notes += [FileRemark(path=at, message=note) for note in said]
            registry._specs[name], registry._sources[name] = parsed.spec, at
        for path, error in problems:
            # READMEs and the like are common next to agents and are no problem.
            found = notes if path.name.lower() in _NOT_AGENTS else faults
            found.append(FileRemark(path=str(path), message=_message_without_path(path, error)))
        registry.problems, registry.notes = tuple(faults), tuple(notes)
        return registry


def _check_specs(specs: object) -> Iterable[AgentSpec]:
    if isinstance(specs, AgentSpec):
        raise ConfigurationError(
            "AgentRegistry needs a list of specs, got one; write AgentRegistry([spec])"
        )
    if isinstance(specs, str | Path):
        loads = "load_file" if Path(specs).suffix.lower() in FORMATS else "load_directory"
        raise ConfigurationError(
            f"AgentRegistry(...) needs specs, got the path {str(specs)!r}; write "
            f"AgentRegistry().{loads}({str(specs)!r})"
        )
    if not isinstance(specs, Iterable):
        raise ConfigurationError(
            f"{specs!r:.80} is not a list of specs; write AgentRegistry([spec, ...])"
        )
    return cast("Iterable[AgentSpec]", specs)


def _parse(path: Path, strict: bool | None, *, beneath: Path | None = None) -> ParsedSpec:
    is_strict = _LENIENT_BELOW not in path.absolute().parts if strict is None else strict
    return AgentSpecParser(strict=is_strict).parse_file_with_notes(path, beneath=beneath)


def _message_without_path(path: Path, error: DefinitionError) -> str:
    return str(error).removeprefix(f"{path}: ")


def _as_untrusted(parsed: ParsedSpec, allowed_models: Collection[str]) -> ParsedSpec:
    spec, note = parsed.spec.as_untrusted(allowed_models)
    return ParsedSpec(spec=spec, notes=parsed.notes if note is None else (*parsed.notes, note))


def _find_files(directory: Path, *, recursive: bool) -> tuple[list[Path], list[_Problem]]:
    """Return the definitions in a directory, sorted by path, and what could not be read. Skips
    hidden files and linked directories. Searches breadth first."""
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
        files, below = _split_entries(looked_at)
        found += files
        if recursive and depth == MAX_DEPTH:
            too_deep += below
        elif recursive:
            ahead.extend((path, depth + 1) for path in below)
    faults: list[str] = []
    if too_deep:
        faults.append(
            f"goes more than {MAX_DEPTH} directories deep; left out: {_summarize_paths(too_deep)}"
        )
    if left < 0:
        rest = _summarize_paths([here, *(path for path, _ in ahead)])
        faults.append(f"contains more than {MAX_ENTRIES:,} entries; left out: parts of {rest}")
    return sorted(found), [*problems, *((directory, DefinitionError(said)) for said in faults)]


def _split_entries(entries: Iterable["os.DirEntry[str]"]) -> tuple[list[Path], list[Path]]:
    """Split entries into definitions and directories."""
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
    except OSError:  # a loop of links, which reading reports
        return False


def _summarize_paths(paths: list[Path]) -> str:
    more = len(paths) - 1
    kind = "directory" if more == 1 else "directories"
    return f"{paths[0]}, and {more} more {kind}" if more else str(paths[0])


def _check_link(directory: Path, path: Path) -> None:
    try:
        is_inside = path.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError):
        is_inside = False
    if not is_inside:
        raise DefinitionError(f"is a link out of {directory}, which is not followed")
