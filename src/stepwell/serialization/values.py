"""Open data inside a state (metadata, arguments, results) as JSON, exactly, and back.

JSON has no tuples, bytes, dates or infinities; those are kept under a tag, an object with one key
that begins with ``$``. Nothing is looked up by name: an unknown tag is an error.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, cast

from stepwell.continuation import StopReason
from stepwell.errors import ErrorType, SerializationError
from stepwell.messages import FinishReason

AS_IS = frozenset({str, int, bool, type(None), FinishReason, StopReason, ErrorType})
"""JSON has these; our own words are texts."""


class Misfit(Exception):
    """A value that can't be stored or restored; each level on its way up adds to the path."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []

    def inside(self, where: str) -> "Misfit":
        """The same, one level up."""
        self.path.append(where)
        return self

    def error(self) -> SerializationError:
        """The message for the caller."""
        return SerializationError(f"{''.join(reversed(self.path)) or 'it'} {self}")


def is_flat(value: Any) -> bool:
    """Whether it is an object of numbers and texts, as most are: a quick way past the rest."""
    if type(value) is not dict:
        return False
    for key, item in cast("dict[Any, Any]", value).items():
        kind = type(item)  # pyright: ignore[reportUnknownVariableType] - it may be anything
        if kind not in AS_IS and not (
            isfinite(item) if kind is float else kind is list and not item
        ):
            return False
        if type(key) is not str or key[:1] == "$":
            return False
    return True


class ValueWriter:
    """Writes open data; ``write`` names the tag and the writer of more classes."""

    def __init__(self, write: Mapping[type[Any], tuple[str, Callable[[Any], Any]]]) -> None:
        self._writers = {**_WRITE, **write}

    def write(self, value: Any) -> Any:
        """The value as JSON data: the very same object where it is JSON data already."""
        kind = type(value)  # pyright: ignore[reportUnknownVariableType] - it may be anything
        if kind in AS_IS:
            return value
        if kind is float:
            return value if isfinite(value) else {"$float": repr(value)}
        if kind is dict:
            return self._write_dict(value)
        if kind is list:
            return self._write_list(value)
        return self._write_other(value)

    def _write_dict(self, value: dict[Any, Any]) -> Any:
        changed: dict[str, Any] | None = None
        for key, item in value.items():
            if type(key) is not str:
                return self._write_odd_keys(value)
            if key.startswith("$"):
                return {"$dict": self._write_pairs(value)}
            kind = type(item)  # pyright: ignore[reportUnknownVariableType] - as above
            if kind in AS_IS or (kind is float and isfinite(item)):
                continue
            try:
                kept = self.write(item)
            except Misfit as misfit:
                raise misfit.inside(f"[{key!r}]") from None
            if kept is not item:
                changed = changed or dict(value)
                changed[key] = kept
        return value if changed is None else changed

    def _write_list(self, value: list[Any]) -> list[Any]:
        changed: list[Any] | None = None
        for place, item in enumerate(value):
            try:
                kept = self.write(item)
            except Misfit as misfit:
                raise misfit.inside(f"[{place}]") from None
            if kept is not item:
                changed = changed or list(value)
                changed[place] = kept
        return value if changed is None else changed

    def _write_odd_keys(self, value: dict[Any, Any]) -> Any:
        """Keys that extend str are texts; others make it a list of pairs."""
        if all(isinstance(key, str) for key in value):
            return self._write_dict({str.__str__(key): item for key, item in value.items()})
        return {"$dict": self._write_pairs(value)}

    def _write_pairs(self, value: dict[Any, Any]) -> list[Any]:
        return [self._write_list([key, item]) for key, item in value.items()]

    def _write_other(self, value: Any) -> Any:
        if isinstance(value, Enum) and isinstance(value, str | int):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, tuple):
            return {"$tuple": self._write_list(list(cast("tuple[Any, ...]", value)))}
        if isinstance(value, Mapping):
            return self._write_dict(dict(cast("Mapping[Any, Any]", value)))
        tag, write = self._writers.get(cast("Any", type(value)), (None, None))
        if tag is None or write is None:
            instead = _INSTEAD.get(type(value).__name__, "JSON data made of it")
            instead = "model_dump(mode='json')" if hasattr(value, "model_dump") else instead
            raise Misfit(
                f"is a {type(value).__qualname__}, which can't be stored; store {instead} instead"
            )
        return {tag: write(value)}


class ValueReader:
    """Reads open data; ``read`` has the readers of more tags."""

    def __init__(self, read: Mapping[str, Callable[[Any], Any]]) -> None:
        self._readers = {**_READ, "$tuple": self._tuple, "$dict": self._pairs, **read}

    def read(self, value: Any) -> Any:
        """The value that ``stored`` made that JSON data of."""
        if type(value) is list:
            return self._items(cast("list[Any]", value))
        if type(value) is not dict:
            return value
        items = cast("dict[str, Any]", value)
        for key in items:
            if key.startswith("$"):
                return self._read_tagged(key, items)
        made: dict[str, Any] = {}
        for key, item in items.items():
            try:
                made[key] = self.read(item)
            except Misfit as misfit:
                raise misfit.inside(f".{key}") from None
        return made

    def _items(self, value: list[Any]) -> list[Any]:
        made: list[Any] = []
        for item in value:
            try:
                made.append(self.read(item))
            except Misfit as misfit:
                raise misfit.inside(f"[{len(made)}]") from None
        return made

    def _read_tagged(self, tag: str, items: dict[str, Any]) -> Any:
        read = self._readers.get(tag)
        if read is None or len(items) != 1:
            raise Misfit(f"has the unknown tag {tag!r:.40}; it was not written by this version")
        try:
            return read(items[tag])
        except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
            raise Misfit(f"is not a {tag}: {error}") from error

    def _tuple(self, body: Any) -> tuple[Any, ...]:
        return tuple(self._items(_check_list(body)))

    def _pairs(self, body: Any) -> dict[Any, Any]:
        return dict(self._items(_check_list(pair)) for pair in _check_list(body))


def _check_list(body: Any) -> list[Any]:
    if type(body) is not list:
        raise ValueError(f"expected a list, got {body!r:.40}")
    return cast("list[Any]", body)


def _special_float(body: Any) -> float:
    if body not in ("nan", "inf", "-inf"):
        raise ValueError(f"{body!r:.40} is neither nan nor an infinity")
    return float(body)


_INSTEAD = {
    "UUID": "str(value)",
    "PosixPath": "str(value)",
    "set": "a list",
    "frozenset": "a list",
    "time": "value.isoformat()",
    "timedelta": "value.total_seconds()",
    "SecretStr": "nothing (secrets are not kept)",
    "ApiKey": "nothing (secrets are not kept)",
}

_WRITE: Mapping[type[Any], tuple[str, Callable[[Any], Any]]] = {
    bytes: ("$bytes", lambda value: b64encode(value).decode()),
    datetime: ("$datetime", datetime.isoformat),
    date: ("$date", date.isoformat),
    Decimal: ("$decimal", str),
}
_READ: Mapping[str, Callable[[Any], Any]] = {
    "$float": _special_float,
    "$bytes": lambda body: b64decode(body, validate=True),
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$decimal": Decimal,
}
