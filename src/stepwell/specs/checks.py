"""Validation of the fields of ``AgentSpec``."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, cast

from msgspec.structs import asdict

from stepwell.errors import ConfigurationError
from stepwell.state import Budget
from stepwell.text import HALF_CHARACTER, is_encodable, truncate_after

MAX_NAME = 100
MAX_DEPTH = 16
MAX_INTEGER = 10**18 - 1

_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[- ]+")


def clean_name(name: object) -> str:
    """Return a name that can't be confused with a path or another name."""
    text = clean_line(name, "name")
    if len(text) > MAX_NAME:
        raise ConfigurationError(
            f"name has {len(text)} characters; use at most {MAX_NAME}: {truncate_after(text, 40)}"
        )
    if "/" in text or "\\" in text or not text.strip("."):
        raise ConfigurationError(f"name {text!r} looks like a path; use letters, digits and -")
    return text


def clean_line(given: object, field: str) -> str:
    """Return one line of text without invisible characters, for names that people compare."""
    text = clean_text(given, field)
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp"):
            raise ConfigurationError(
                f"{field} {text!r:.120} contains the character U+{ord(character):04X}; remove it"
            )
    return text


def clean_text(given: object, field: str) -> str:
    """Return text with normalized line ends and without surrounding white space."""
    if not isinstance(given, str):
        raise ConfigurationError(f"{field} must be text, got {given!r:.80}; put it in quotes")
    text = given.replace("\r\n", "\n").replace("\r", "\n").strip()
    if not text:
        raise ConfigurationError(f"{field} is empty; write some text")
    _check_characters(text, field)
    return text


def _check_characters(text: str, field: str) -> None:
    if not is_encodable(text):
        raise ConfigurationError(f"{field} contains {HALF_CHARACTER}")
    if "\0" in text:
        raise ConfigurationError(f"{field} contains a NUL character; remove it")


def clean_names(given: object, field: str) -> tuple[str, ...]:
    """Return names without duplicates."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{field} must be a list of names, got {given!r:.80}")
    names: list[str] = []
    for entry in cast("Iterable[object]", given):
        name = clean_line(entry, f"a name in {field}")
        if split_names(name) != (name,):
            raise ConfigurationError(f"a name in {field} contains a comma: {name!r:.80}; split it")
        names.append(name)
    return tuple(dict.fromkeys(names))


def split_names(text: str, *, at_blanks: bool = False) -> tuple[str, ...]:
    """Split names at commas and line breaks, or at any white space, but not within parentheses.

    An unclosed parenthesis keeps the rest as one name, so that nothing is named by mistake.

    >>> split_names("Read, Bash(git add:*, git commit:*), Grep")
    ('Read', 'Bash(git add:*, git commit:*)', 'Grep')
    """
    names: list[str] = []
    depth = start = 0
    for at, character in enumerate(text):
        if character in "()":
            depth = max(0, depth + (1 if character == "(" else -1))
        elif not depth and (character in ",\n" or (at_blanks and character.isspace())):
            names.append(text[start:at])
            start = at + 1
    names.append(text[start:])
    return tuple(name.strip() for name in names if name.strip())


def field_name(key: str, aliases: Mapping[str, str]) -> str:
    """Normalize a field's name: ``disallowedTools`` and ``Disallowed-Tools`` are the same."""
    name = _WORD_BREAK.sub("_", str(key).strip()).lower()
    return aliases.get(name, name)


def check_budget(budget: object) -> None:
    """Raise ``ConfigurationError`` if the value is not a valid budget."""
    if budget is None:
        return
    if not isinstance(budget, Budget):
        raise ConfigurationError(f"budget is {budget!r:.80}; write Budget(steps=10)")
    for kind, amount in asdict(budget).items():
        wants_whole = kind in ("steps", "tokens")
        if isinstance(amount, bool) or not isinstance(
            amount, int | None if wants_whole else int | float | None
        ):
            raise ConfigurationError(f"budget {kind} must be a number, got {amount!r:.80}")


def plain_mapping(given: object, field: str) -> dict[str, Any]:
    """Copy a mapping with the value types that all file formats support."""
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{field} must be a mapping, got {given!r:.80}")
    return cast("dict[str, Any]", plain_value(cast("object", given), field, 0))


def plain_value(given: object, field: str, depth: int) -> Any:
    """Copy a value with the types that all file formats support."""
    if depth > MAX_DEPTH:
        raise ConfigurationError(f"{field} is nested deeper than {MAX_DEPTH} levels")
    match given:
        case None | bool():
            return given
        case str():
            _check_characters(given, field)
            return str(given)
        case int() if abs(given) <= MAX_INTEGER:
            return given
        case float() if isfinite(given):
            return given
        case list() | tuple():
            items = cast("Iterable[object]", given)
            return [plain_value(item, field, depth + 1) for item in items]
        case Mapping():
            fields = cast("Mapping[object, object]", given)
            return {_key(key, field): plain_value(fields[key], field, depth + 1) for key in fields}
        case _:
            raise ConfigurationError(
                f"{field} contains {given!r:.80}; use text, numbers, booleans, lists and mappings"
            )


def _key(key: object, field: str) -> str:
    if not isinstance(key, str):
        raise ConfigurationError(f"{field} has the key {key!r:.80}; use text")
    _check_characters(key, field)
    return str(key)
