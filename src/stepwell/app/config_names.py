"""What is wrong in a configuration, in words: names that it does not know, told before values are
looked at, with the known; values of another kind."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, cast, get_args

from msgspec import Struct, structs

from stepwell.errors import ConfigurationError


def check_names(shape: type[Struct], data: Mapping[str, Any], section: str = "") -> None:
    """Raise for a field that the shape has not, or a word that its field does not take."""
    fields = {field.name: field.type for field in structs.fields(shape)}
    for name, value in data.items():
        if name not in fields:
            where = f" in [{section}]" if section else ""
            raise ConfigurationError(f"{name!r} is no setting{where}; known: {', '.join(fields)}")
        path = f"{section}.{name}" if section else name
        for kind in _classes(fields[name]):
            if issubclass(kind, Struct) and isinstance(value, Mapping):
                check_names(kind, cast("Mapping[str, Any]", value), path)
            elif issubclass(kind, StrEnum) and value is not None and value not in list(kind):
                raise ConfigurationError(f"{path} is {value!r}; give {' or '.join(kind)}")


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
"""What is meant for one of these is no secret, and may be shown."""


def in_words(fault: str, data: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Where msgspec found a value of another kind, and what it says of it, for people.

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
    """The value at that path; None if there is none."""
    value: Any = data if path else None
    for name in path:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return value


def _classes(type_: Any) -> Iterator[type[Any]]:
    for each in (type_, *get_args(type_)):
        if isinstance(each, type):
            yield each
