"""A skill as a value: what a SKILL.md file says, and the files that lie beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

FORK = "fork"
"""The ``context`` of a skill that runs in an agent of its own."""


class Skill(Struct, frozen=True, kw_only=True):
    """Instructions that a model loads when it needs them.

    ``allowed_tools`` are the entries as they are written, such as ``Read`` or ``Bash(git add:*)``;
    none means that nothing is restricted. ``resources`` are paths from the skill's directory on.
    Fields that nobody here knows are in ``extra``.

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
        """Where its files lie."""
        return None if self.path is None else self.path.parent

    @property
    def is_fork(self) -> bool:
        """Whether it runs in an agent of its own."""
        return self.context == FORK


class SkillSummary(Struct, frozen=True, kw_only=True):
    """What is known of a skill before it is loaded."""

    name: str
    description: str
    path: Path
    user_invocable: bool = True
    disable_model_invocation: bool = False
    is_fork: bool = False
