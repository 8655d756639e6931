"""Reads the fields of a slim document; whatever does not fit is an error that names its field."""

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, cast

from msgspec import Struct

from stepwell.errors import SerializationError

_MISSING = object()
Word = TypeVar("Word", bound=StrEnum)


class Fields(Struct, frozen=True):
    """One object of a document, and where it stands in it.

    >>> Fields.of({"role": 5}, "messages[3]").text("role")
    Traceback (most recent call last):
    stepwell.errors.SerializationError: messages[3].role is 5; expected a text
    """

    values: Mapping[str, Any]
    path: str = ""

    @classmethod
    def of(cls, value: Any, path: str = "") -> "Fields":
        """The fields of what should be an object."""
        if not isinstance(value, Mapping):
            _refuse(path or "the document", value, "an object")
        values = cast("Mapping[Any, Any]", value)
        odd = next((key for key in values if not isinstance(key, str)), None)
        if odd is not None:
            _refuse(f"a key of {path or 'the document'}", odd, "a text")
        return cls(values, path)

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(key) is not None

    def text(self, key: str) -> str:
        """A text."""
        value = self._get(key, "a text")
        return value if isinstance(value, str) else self.refuse(key, "a text")

    def id(self, key: str) -> str:
        """A text that is not empty."""
        value = self._get(key, "an id")
        return value if isinstance(value, str) and value else self.refuse(key, "an id")

    def word(self, key: str, words: type[Word]) -> Word:
        """One of the words of a vocabulary."""
        expected = f"one of {', '.join(words)}"
        value = self._get(key, expected)
        found = next((word for word in words if word.value == value), None)
        return self.refuse(key, expected) if found is None else found

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._get(key, "true or false")
        return value if isinstance(value, bool) else self.refuse(key, "true or false")

    def count(self, key: str) -> int:
        """A whole number."""
        expected = "a whole number, 0 or more"
        value = self._get(key, expected)
        return value if type(value) is int and value >= 0 else self.refuse(key, expected)

    def seconds(self, key: str) -> float:
        """A number."""
        expected = "a number, 0 or more"
        value = self._get(key, expected)
        try:
            fits = type(value) in (int, float) and value >= 0 and math.isfinite(value)
        except OverflowError:  # an integer that no float can hold
            fits = False
        return float(value) if fits else self.refuse(key, expected)

    def time(self, key: str) -> datetime:
        """A point in time."""
        expected = "a time such as 2026-01-16T10:00:00.000000Z"
        value = self._get(key, expected)
        try:
            at = datetime.fromisoformat(value) if isinstance(value, str) else None
            at = None if at is None or at.tzinfo is None else at.astimezone(UTC)
        except (ValueError, OverflowError):
            at = None
        return self.refuse(key, expected) if at is None else at

    def fields(self, key: str) -> "Fields":
        """An object."""
        return Fields.of(self._get(key, "an object"), self._at(key))

    def items(self, key: str) -> "Iterator[Fields]":
        """A list of objects."""
        value = self._get(key, "a list")
        if not isinstance(value, list | tuple):
            self.refuse(key, "a list")
        for place, item in enumerate(cast("list[Any]", value)):
            yield Fields.of(item, f"{self._at(key)}[{place}]")

    def without(self, *keys: str) -> "Fields":
        """All other fields."""
        return Fields({k: v for k, v in self.values.items() if k not in keys}, self.path)

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Says what is wrong with a field. Raises ``SerializationError``."""
        _refuse(self._at(key), self.values.get(key, _MISSING), expected)

    def _get(self, key: str, expected: str) -> Any:
        if key not in self.values:
            self.refuse(key, expected)
        return self.values[key]

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _refuse(path: str, value: Any, expected: str) -> NoReturn:
    is_what = "missing" if value is _MISSING else _quote(value)
    raise SerializationError(f"{path} is {is_what}; expected {expected}")


def _quote(value: Any) -> str:
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):  # a number with too many digits, or nested too deep
        return f"of type {type(value).__name__}"
