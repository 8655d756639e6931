"""Which tools an active skill allows, from the entries that its file writes.

Files of other programs limit the shell to some commands, as in ``Bash(git add:*)``. Such a limit is
enforced for ``bash``; an entry whose limit can't be enforced allows nothing.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from stepwell.agent.spec import tools_meant

BASH = "bash"
LOAD_SKILL = "load_skill"

ALWAYS_ALLOWED = (LOAD_SKILL, "user_input", "todo_write")
"""What no skill takes away: the way out of it, asking a person and planning, which have no effect
outside the conversation."""

PLAIN_COMMANDS = (
    "bash runs one plain command at a time: no &&, ;, pipes, redirections, $ or line breaks. Make "
    "one call for each command."
)
"""What a limit on ``bash`` means for whoever writes the command."""

_ENTRY = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)
_NO_LIMIT = frozenset({None, "*", ":*"})
_BARE = frozenset(";&|<>()$`\\\n\r\0")
_IN_DOUBLE_QUOTES = frozenset("$`\\\0")


class AllowList(Struct, frozen=True):
    """Names of tools, and ``bash(...)`` entries that allow some commands only.

    >>> allowed = AllowList(("read_file", "bash(git add:*)"))
    >>> [allowed.permits("bash", {"command": command}) for command in ("git add .", "ls")]
    [True, False]
    """

    entries: tuple[str, ...]

    @classmethod
    def of(cls, written: Iterable[str], offered: Iterable[str] | None) -> "AllowList":
        """The entries of a skill in the names of the tools that are offered; None if unknown."""
        names = None if offered is None else tuple(offered)
        entries: dict[str, None] = {}
        for entry in written:
            parts = _ENTRY.fullmatch(entry)
            if parts is None:
                continue
            limit = None if parts[2] is None else parts[2].strip()
            for name in tools_meant(parts[1], names):
                if limit in _NO_LIMIT:
                    entries[name] = None
                elif name == BASH and limit:
                    entries[f"{BASH}({limit})"] = None
        return cls(tuple(entries))

    @property
    def names(self) -> frozenset[str]:
        """The tools that are allowed for some calls at least."""
        return frozenset((*ALWAYS_ALLOWED, *(entry.partition("(")[0] for entry in self.entries)))

    @property
    def limits_bash(self) -> bool:
        """Whether ``bash`` is allowed for some commands only."""
        return BASH in self.names and BASH not in self.entries

    def permits(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether this call is allowed."""
        if tool in ALWAYS_ALLOWED or tool in self.entries:
            return True
        command = arguments.get("command")
        if tool != BASH or not isinstance(command, str) or not _is_one_command(command):
            return False
        limits = (_ENTRY.fullmatch(entry) for entry in self.entries)
        return any(_fits(command.strip(), m[2]) for m in limits if m and m[1] == BASH and m[2])

    def __str__(self) -> str:
        """The entries in one line."""
        return ", ".join(self.entries) or "none of the tools here"


def _fits(command: str, limits: str) -> bool:
    """A comma is part of a command, unless it stands between limits that all end with a star."""
    several = [limit.strip() for limit in limits.split(",")]
    if not all(limit.endswith("*") for limit in several):
        several = [limits.strip()]
    return any(_fits_one(command, limit) for limit in several if limit)


def _fits_one(command: str, limit: str) -> bool:
    """`git add:*` is a beginning, `git *` has any text for the star, others are whole commands."""
    if limit.endswith(":*"):
        begin = limit.removesuffix(":*").strip()
        return bool(begin) and (command == begin or command.startswith(f"{begin} "))
    return _fits_stars(command, limit.split("*"))


def _fits_stars(command: str, parts: list[str]) -> bool:
    """Whether the parts stand in the command in this order, with any text between them."""
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
    """Whether the shell would run this one program and nothing else: no second command, no
    redirection and nothing that it expands to a command."""
    quote = ""
    for character in command.strip():
        if quote == "'":
            quote = "" if character == "'" else quote
        elif quote == '"':
            if character in _IN_DOUBLE_QUOTES:
                return False
            quote = "" if character == '"' else quote
        elif character in "'\"":
            quote = character
        elif character in _BARE:
            return False
    return not quote
