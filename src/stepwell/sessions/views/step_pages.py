"""Pages of bounded size: so many items, so many characters, and large values truncated with a note.
Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec import Struct

from stepwell.text import truncate_with_note

LONGEST_TEXT = 16_000
MOST_VALUES = 1_000
MOST_CHARACTERS = 250_000
"""The most characters of a page, unless its first item alone has more."""
_LARGEST_VALUE = 32_000
_DEEPEST = 40
Item = TypeVar("Item")


class PagePart(Struct, frozen=True):
    """Items of a list in order, and whether there are more."""

    items: Sequence[Any]
    has_more: bool


class Shortener:
    """Copies JSON data, truncates large values, and counts the characters kept.

    >>> shortener = Shortener("GET /it for the whole")
    >>> cut = shortener.shorten({"result": "x" * 20_000})
    >>> cut["result"][15_990:]
    'xxxxxxxxxx... [4,000 more characters; GET /it for the whole]'
    >>> shortener.has_cut, shortener.characters < 16_200
    (True, True)
    """

    def __init__(self, whole: str) -> None:
        self._whole = whole
        self._values = self._left = 0
        self.characters = 0
        self.has_cut = False

    def shorten(self, value: Any) -> Any:
        """Return one value, shortened to its own budget."""
        self._values, self._left = MOST_VALUES, _LARGEST_VALUE
        return self._copy(value, 0)

    def _copy(self, value: Any, depth: int) -> Any:
        match value:
            case str():
                return self._text(value)
            case Mapping():
                if depth == _DEEPEST:
                    return self._note("nested deeper")
                return self._mapping(cast("Mapping[str, Any]", value), depth)
            case list() | tuple():
                if depth == _DEEPEST:
                    return self._note("nested deeper")
                return self._list(cast("Sequence[Any]", value), depth)
            case _:
                self._count(8)
                return value

    def _text(self, text: str) -> str:
        if len(text) > LONGEST_TEXT:
            self.has_cut = True
            text = truncate_with_note(text, LONGEST_TEXT, self._whole)
        self._count(len(text))
        return text

    def _list(self, items: Sequence[Any], depth: int) -> list[Any]:
        copies: list[Any] = []
        for item in items:
            if self._values <= 0 or self._left <= 0:
                return [*copies, self._note(f"{len(items) - len(copies):,} more items")]
            copies.append(self._copy(item, depth + 1))
        return copies

    def _mapping(self, fields: Mapping[str, Any], depth: int) -> dict[str, Any]:
        copies: dict[str, Any] = {}
        for name, value in fields.items():
            if self._values <= 0 or self._left <= 0:
                copies["..."] = self._note(f"{len(fields) - len(copies):,} more fields")
                return copies
            copies[self._text(name)] = self._copy(value, depth + 1)
        return copies

    def _count(self, characters: int) -> None:
        self._values -= 1
        self._left -= characters
        self.characters += characters

    def _note(self, what: str) -> str:
        self.has_cut = True
        return f"... [{what}; {self._whole}]"


def take_part(
    items: Sequence[Item], limit: int, shorten: Callable[[Item], tuple[Any, int]]
) -> PagePart:
    """Return the first items, shortened, within that many and ``MOST_CHARACTERS``; at least one.

    >>> take_part(["a", "b", "c"], 2, lambda item: (item, 1))
    PagePart(items=['a', 'b'], has_more=True)
    """
    taken: list[Any] = []
    characters = 0
    for item in items[:limit]:
        copy, size = shorten(item)
        if taken and characters + size > MOST_CHARACTERS:
            break
        taken.append(copy)
        characters += size
    return PagePart(taken, len(taken) < len(items))
