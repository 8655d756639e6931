"""Which tools an active skill allows, according to the entries in its file.

Entries can limit the shell to certain commands, as in ``Bash(git add:*)``. Such a limit is enforced
for ``bash``; an entry whose limit can't be enforced allows nothing.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from stepwell.specs.spec import matching_tools

BASH = "bash"
LOAD_SKILL = "load_skill"

ALWAYS_ALLOWED = (LOAD_SKILL, "user_input", "todo_write")
"""Tools that no skill takes away: leaving the skill, asking a person and planning. They have no
effect outside the conversation."""

PLAIN_COMMANDS = (
    "bash runs one plain command at a time: no &&, ;, pipes, redirections, $ or line breaks. Make "
    "one call for each command."
)
"""Explains a limit on ``bash`` to the model."""

_ENTRY = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)
_NO_LIMIT = frozenset({None, "*", ":*"})
_SHELL_SYNTAX = frozenset(";&|<>()$`\\\n\r\0")
_SYNTAX_IN_DOUBLE_QUOTES = frozenset("$`\\\0")


class AllowList(Struct, frozen=True):
    """Names of tools, and ``bash(...)`` entries that allow only certain commands.

    >>> allowed = AllowList(("read_file", "bash(git add:*)"))
    >>> [allowed.permits("bash", {"command": command}) for command in ("git add .", "ls")]
    [True, False]
    """

    entries: tuple[str, ...]

    @classmethod
    def of(cls, written: Iterable[str], offered: Iterable[str] | None) -> "AllowList":
        """Translate a skill's entries into the names of the offered tools (None: not known)."""
        names = None if offered is None else tuple(offered)
        entries: dict[str, None] = {}
        for entry in written:
            parts = _ENTRY.fullmatch(entry)
            if parts is None:
                continue
            limit = None if parts[2] is None else parts[2].strip()
            for name in matching_tools(parts[1], names):
                if limit in _NO_LIMIT:
                    entries[name] = None
                elif name == BASH and limit:
                    entries[f"{BASH}({limit})"] = None
        return cls(tuple(entries))

    @property
    def names(self) -> frozenset[str]:
        """The tools that are allowed for at least some calls."""
        return frozenset((*ALWAYS_ALLOWED, *(entry.partition("(")[0] for entry in self.entries)))

    @property
    def limits_bash(self) -> bool:
        """Whether ``bash`` is allowed only for certain commands."""
        return BASH in self.names and BASH not in self.entries

    def permits(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call is allowed."""
        if tool in ALWAYS_ALLOWED or tool in self.entries:
            return True
        command = arguments.get("command")
        if tool != BASH or not isinstance(command, str) or not _is_one_command(command):
            return False
        limits = (_ENTRY.fullmatch(entry) for entry in self.entries)
        return any(
            _matches_any(command.strip(), m[2]) for m in limits if m and m[1] == BASH and m[2]
        )

    def __str__(self) -> str:
        """Return the entries in one line."""
        return ", ".join(self.entries) or "none of the tools here"


def _matches_any(command: str, limits: str) -> bool:
    """Match a comma-separated list of limits; without a star in each, the comma is literal."""
    several = [limit.strip() for limit in limits.split(",")]
    if not all(limit.endswith("*") for limit in several):
        several = [limits.strip()]
    return any(_matches(command, limit) for limit in several if limit)


def _matches(command: str, limit: str) -> bool:
    """Match one limit: `git add:*` is a prefix, `git *` a pattern, others are whole commands."""
    if limit.endswith(":*"):
        begin = limit.removesuffix(":*").strip()
        return bool(begin) and (command == begin or command.startswith(f"{begin} "))
    return _matches_stars(command, limit.split("*"))


def _matches_stars(command: str, parts: list[str]) -> bool:
    """Return whether the parts occur in the command in this order, with any text between them."""
    first, *between = parts
    if not between:
        return command == first
    last = between.pop()
    at = len(first)
    if not command.startswith(first):
        return False
    for part in between:
        found = command.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(command) - len(last) >= at and command.endswith(last)


def _is_one_command(command: str) -> bool:
    """Return whether the shell would run exactly one program: no second command, no redirection
    and no expansion."""
    quote = ""
    for character in command.strip():
        if quote == "'":
            quote = "" if character == "'" else quote
        elif quote == '"':
            if character in _SYNTAX_IN_DOUBLE_QUOTES:
                return False
            quote = "" if character == '"' else quote
        elif character in "'\"":
            quote = character
        elif character in _SHELL_SYNTAX:
            return False
    return not quote
