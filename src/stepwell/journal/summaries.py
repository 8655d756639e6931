"""Summaries of arguments and results for envelopes: short texts, and data that is valid JSON.

It calls no foreign code and every walk is bounded, so it never raises and stays fast. Mappings and
lists of other types are shown by name only.
"""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

from stepwell.text import DOTS, replace_half_characters, truncate, truncate_after

MOST_ARGUMENTS = 3
LONGEST_ARGUMENT = 30
LONGEST_RESULT = 100

MOST_VALUES = 10_000
"""Values of one argument mapping that are shown; the rest is left out."""
MOST_SUMMARIZED = 100
"""A summary shows far less than so many values."""
DEEPEST = 64
SMALLEST_INTEGER, BIGGEST_INTEGER = -(2**63), 2**64 - 1

_AS_TEXT = (date, time, Decimal, UUID, PurePath)


def args_summary(args: Mapping[str, Any]) -> str:
    """Return the first three arguments as a short text.

    >>> args_summary({"query": "dbplus", "types": ["program"], "limit": 3, "page": 4})
    'query: \\'dbplus\\', types: ["program"], limit: 3'
    >>> args_summary({"text": "a text of more than thirty characters"})
    "text: 'a text of more than thirty..."
    """
    return ", ".join(
        f"{truncate(_key(name), LONGEST_ARGUMENT)}: {truncate(_as_text(value), LONGEST_ARGUMENT)}"
        for name, value in islice(_items_of(args), MOST_ARGUMENTS)
    )


def result_summary(value: Any, note: str = "") -> str | None:
    """Return a result in a hundred characters, then its note; None if there is neither.

    >>> result_summary({"found": 3})
    '{"found":3}'
    """
    if value is None:
        return note or None
    text = truncate(value if isinstance(value, str) else _as_json(value), LONGEST_RESULT)
    return f"{text}\n\n{note}" if note else text


def truncated_args(args: Mapping[str, Any], longest_text: int) -> dict[str, Any]:
    """Return all arguments as JSON data, with long texts truncated at any depth.

    >>> truncated_args({"path": "a" * 9, "options": {"deep": ["b" * 9]}}, longest_text=4)
    {'path': 'aaaa...', 'options': {'deep': ['bbbb...']}}
    """
    return _Plain(longest_text, MOST_VALUES).mapping(_items_of(args), 0)


def _as_text(value: Any) -> str:
    # One character more than fits, so that clipping still sees what was too long.
    return f"'{value[:LONGEST_ARGUMENT]}'" if isinstance(value, str) else _as_json(value)


def _as_json(value: Any) -> str:
    return _ENCODER.encode(_Plain(LONGEST_RESULT, MOST_SUMMARIZED).value(value, 0))


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _key(name: object) -> str:
    return name if isinstance(name, str) else f"{_leaf(name)}"


class _Plain:
    """Walks a value and counts, to limit size and depth."""

    def __init__(self, longest_text: int, most_values: int) -> None:
        self._longest_text = longest_text
        self._left = most_values

    def value(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict | list | tuple | set | frozenset):
            if depth >= DEEPEST or self._left <= 0:
                return DOTS
            if isinstance(value, dict):
                return self.mapping(_items_of(cast("dict[Any, Any]", value)), depth)
            return self._items(_members_of(cast("list[Any]", value)), depth)
        if isinstance(value, Enum):
            return self.value(value.value, depth + 1) if depth < DEEPEST else DOTS
        return _leaf(value)

    def mapping(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for name, item in items:
            if self._left <= 0:
                plain[DOTS] = DOTS
                break
            plain[replace_half_characters(_key(name))] = self.value(item, depth + 1)
        return plain

    def _items(self, items: Iterable[Any], depth: int) -> list[Any]:
        plain: list[Any] = []
        for item in items:
            if self._left <= 0:
                plain.append(DOTS)
                break
            plain.append(self.value(item, depth + 1))
        return plain

    def _text(self, text: str) -> str:
        return replace_half_characters(truncate_after(text, self._longest_text))


def _items_of(mapping: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """As ``dict`` has them, whatever a subclass of it does; none of another mapping."""
    return cast(Any, dict).items(mapping) if isinstance(mapping, dict) else ()


def _members_of(
    several: "list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]",
) -> Iterable[Any]:
    kinds: tuple[Any, ...] = (list, tuple, set, frozenset)
    return next(kind for kind in kinds if isinstance(several, kind)).__iter__(several)


def _leaf(value: object) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            return _integer(int(value))
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case bytes() | bytearray():
            return f"({len(value)} bytes)"
        case _ if isinstance(value, _AS_TEXT):
            return str(value)
        case _:
            return f"({type(value).__name__})"


def _integer(number: int) -> int | str:
    """JSON readers know 64 bits, and Python refuses to write out thousands of digits."""
    if SMALLEST_INTEGER <= number <= BIGGEST_INTEGER:
        return number
    return (
        str(number) if number.bit_length() < 1024 else f"(a number of {number.bit_length()} bits)"
    )
