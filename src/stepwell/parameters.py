"""Checks of what constructors are given: a wrong value is refused at once, naming the parameter."""

from collections.abc import Iterable, Mapping
from math import isfinite
from os import PathLike, fspath
from typing import Any, TypeVar, cast

from stepwell.errors import ConfigurationError

Wanted = TypeVar("Wanted")


def check_integer(value: Any, name: str, *, least: int) -> int:
    """Return the value if it is a whole number of at least ``least``.

    >>> check_integer(3, "max_items", least=1)
    3
    """
    if type(value) is int and value >= least:
        return value
    kind = "" if type(value) is int else "a whole number of "
    raise ConfigurationError(f"{name} must be {kind}{least} or more, got {value!r:.80}")


def check_number(value: Any, name: str) -> float:
    """Return the value if it is a finite number of 0 or more."""
    if not _is_finite(value) or value < 0:
        raise ConfigurationError(f"{name} must be a number of 0 or more, got {value!r:.80}")
    return value


def check_seconds(value: Any, name: str) -> float:
    """Return the value if it is a finite number of seconds above 0.

    >>> check_seconds(float("nan"), "timeout")
    Traceback (most recent call last):
    stepwell.errors.ConfigurationError: timeout must be above 0 seconds, got nan
    """
    if not _is_finite(value) or value <= 0:
        raise ConfigurationError(f"{name} must be above 0 seconds, got {value!r:.80}")
    return value


def check_flag(value: Any, name: str) -> bool:
    """Return the value if it is True or False."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, got {value!r:.80}")
    return value


def check_text(value: Any, name: str) -> str:
    """Return the value if it is text that is not blank."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be text, got {value!r:.80}")
    if not value.strip():
        raise ConfigurationError(f"{name} is empty; write some text, or leave it out")
    return value


def check_path(value: Any, name: str) -> str:
    """Return the path as text if it is one and not empty: an empty one would mean the current
    directory."""
    path = fspath(cast("PathLike[Any]", value)) if isinstance(value, PathLike) else value
    if not isinstance(path, str) or not path.strip():
        raise ConfigurationError(f"{name} has {value!r:.80}, which is not a path")
    return path


def check_texts(values: Any, name: str) -> tuple[str, ...]:
    """Return the values if they are several texts; one text alone is not.

    >>> check_texts(["a", "b"], "tags")
    ('a', 'b')
    """
    if isinstance(values, str):
        raise ConfigurationError(f"{name} wants several texts, got one; write {name}=({values!r},)")
    listed = tuple(cast("Iterable[Any]", values)) if isinstance(values, Iterable) else None
    if listed is None or not all(isinstance(value, str) for value in listed):
        raise ConfigurationError(f"{name} wants several texts, got {values!r:.80}")
    return listed


def check_mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Return the value if it is a mapping with texts as keys. Values are not shown: they may be
    secret."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        if all(isinstance(key, str) for key in pairs):
            return cast("Mapping[str, Any]", pairs)
    kind = type(cast("object", value)).__name__
    raise ConfigurationError(f"{name} must be a mapping with texts as keys, got a {kind}")


def check_kind(value: Any, name: str, wanted: type[Wanted]) -> Wanted:
    """Return the value if it is an object of that class."""
    if not isinstance(value, wanted):
        article = "an" if wanted.__name__[0] in "AEIOU" else "a"
        raise ConfigurationError(
            f"{name} must be {article} {wanted.__name__} object, got {value!r:.80}"
        )
    return value


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
