"""Parses the command line of the supervising program."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Order:
    """The command to run and its limits, from the command line."""

    def __init__(self, words: Sequence[str]) -> None:
        separator = list(words).index("--")
        self.argv = list(words[separator + 1 :])
        self.values: dict[str, list[str]] = {}
        for name, value in zip(words[:separator:2], words[1:separator:2], strict=True):
            self.values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        """Return every value of a repeatable option."""
        return self.values.get(name, [])

    def one(self, name: str) -> str:
        """Return the value of an option, empty if it is absent."""
        return self.values.get(name, [""])[0]

    def number(self, name: str) -> int:
        """Return the value of a numeric option, 0 if it is absent."""
        return int(self.one(name) or 0)


class Refused(Exception):
    """Raised when the command can't be confined; the message says why."""
