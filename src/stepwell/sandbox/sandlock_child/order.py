"""What the supervising program is told by its command line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Order:
    """What to run and within which limits, as the command line says it."""

    def __init__(self, words: Sequence[str]) -> None:
        cut = list(words).index("--")
        self.argv = list(words[cut + 1 :])
        self.values: dict[str, list[str]] = {}
        for name, value in zip(words[:cut:2], words[1:cut:2], strict=True):
            self.values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        """Every value of an option that may come several times."""
        return self.values.get(name, [])

    def one(self, name: str) -> str:
        """The value of an option, empty if it is absent."""
        return self.values.get(name, [""])[0]

    def number(self, name: str) -> int:
        """The value of an option that is a number, 0 if it is absent."""
        return int(self.one(name) or 0)


class Refused(Exception):
    """The command can't be confined; the message says why."""
