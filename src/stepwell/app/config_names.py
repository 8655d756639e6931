"""Explains errors in a configuration: unknown names first, then values of a wrong type."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, cast, get_args

from msgspec import Struct, structs

from stepwell.errors import ConfigurationError


def check_names(shape: type[Struct], data: Mapping[str, Any], section: str = "") -> None:
    """Raise for an unknown field, or for a word that an enum does not have."""
    fields = {field.name: field.type for field in structs.fields(shape)}
    for name, value in data.items():
        if name not in fields:
            where = f" in [{section}]" if section else ""
            raise ConfigurationError(
                f"unknown setting {name!r}{where}; known settings: {', '.join(fields)}"
            )
        path = f"{section}.{name}" if section else name
        for kind in _classes(fields[name]):
            if issubclass(kind, Struct) and isinstance(value, Mapping):
                check_names(kind, cast("Mapping[str, Any]", value), path)
            elif issubclass(kind, StrEnum) and value is not None and value not in list(kind):
                raise ConfigurationError(f"{path} ({value!r}) must be {' or '.join(kind)}")


_MISMATCH = re.compile(
    r"Expected (?P<kinds>`[^,]+?)(?:, got `(?P<got>[^`]+)`)? - at `\$\.(?P<path>[\w.]+)[^`]*`"
)
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "null": "nothing",
    "array": "a list",
    "object": "a section",
}
_PLAIN = {"int", "float", "bool"}
"""A value for one of these types is not secret and may be shown."""


def in_words(fault: str, data: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return the path of a value that msgspec refused, and an explanation.

    >>> in_words("Expected `int`, got `str` - at `$.port`", {"port": "abc"})
    (('port',), "port must be a whole number, got 'abc'")
    >>> in_words("Expected `int` <= 65535 - at `$.port`", {"port": 99999})[1]
    'port must be a whole number <= 65535, got 99999'
    """
    found = _MISMATCH.search(fault)
    if found is None:
        return (), fault
    kinds: list[str] = re.findall(r"\w+", found["kinds"].partition("`")[2].partition("`")[0])
    limit = found["kinds"].rpartition("`")[2]
    meant = " or ".join(_WORDS.get(kind, kind) for kind in kinds if kind != "null") + limit
    path = tuple(found["path"].split("."))
    got = _WORDS.get(found["got"] or "", found["got"] or "another")
    if set(kinds) & _PLAIN:
        got = f"{at(data, path)!r:.60}"
    return path, f"{'.'.join(path)} must be {meant}, got {got}"


def at(data: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at that path, or None."""
    value: Any = data if path else None
    for name in path:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return value


def _classes(type_: Any) -> Iterator[type[Any]]:
    for each in (type_, *get_args(type_)):
        if isinstance(each, type):
            yield each
