"""A skill as a value: the content of a SKILL.md file and the files next to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

FORK = "fork"
"""The ``context`` of a skill that runs in its own agent."""


class Skill(Struct, frozen=True, kw_only=True):
    """Instructions that a model loads when it needs them.

    ``allowed_tools`` holds the entries as written, such as ``Read`` or ``Bash(git add:*)``; no
    entries means no restriction. ``resources`` are paths relative to the skill's directory. Unknown
    fields are in ``extra``.

    >>> skill = Skill(name="release", description="Makes a release.", body="Bump the version.")
    >>> skill.user_invocable, skill.disable_model_invocation, skill.is_fork
    (True, False, False)
    """

    name: str
    description: str = ""
    body: str = ""
    allowed_tools: tuple[str, ...] = ()
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, Any] = {}
    model: str | None = None
    context: str | None = None
    agent: str | None = None
    argument_hint: str | None = None
    user_invocable: bool = True
    disable_model_invocation: bool = False
    tags: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    path: Path | None = None
    extra: Mapping[str, Any] = {}

    @property
    def directory(self) -> Path | None:
        """The directory of the skill's files."""
        return None if self.path is None else self.path.parent

    @property
    def shown_directory(self) -> str | None:
        """The directory as the model sees it: relative to the current one, or by its last two
        names. It tells nobody where the server keeps its files, and is the same on any machine."""
        directory = self.directory
        if directory is None:
            return None
        here = Path.cwd()
        if directory.is_relative_to(here):
            return str(directory.relative_to(here))
        return "/".join(directory.parts[-2:]) if directory.is_absolute() else str(directory)

    @property
    def is_fork(self) -> bool:
        """Whether it runs in its own agent."""
        return self.context == FORK


class SkillSummary(Struct, frozen=True, kw_only=True):
    """What the library knows about a skill before it is loaded."""

    name: str
    description: str
    path: Path
    user_invocable: bool = True
    disable_model_invocation: bool = False
    is_fork: bool = False
