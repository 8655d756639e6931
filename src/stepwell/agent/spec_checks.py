"""The checks of ``AgentSpec``: what its texts, names, budget and metadata may hold, and how names
are told apart.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, cast

from msgspec.structs import asdict

from stepwell.errors import ConfigurationError
from stepwell.state import Budget

MAX_NAME = 100
MAX_DEPTH = 16
LARGEST_INTEGER = 10**18 - 1

_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[- ]+")


def checked_name(name: object) -> str:
    """A name that can't be mistaken for a path or for another name."""
    text = line_of_text(name, "name")
    if len(text) > MAX_NAME:
        raise ConfigurationError(
            f"name has {len(text)} characters; use at most {MAX_NAME}: {text:.40}..."
        )
    if "/" in text or "\\" in text or not text.strip("."):
        raise ConfigurationError(f"name {text!r} looks like a path; use letters, digits and -")
    return text


def line_of_text(given: object, field: str) -> str:
    """One line without characters that can't be seen: names are compared and shown."""
    text = checked_text(given, field)
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp"):
            raise ConfigurationError(
                f"{field} {text!r:.120} holds the character U+{ord(character):04X}; remove it"
            )
    return text


def checked_text(given: object, field: str) -> str:
    """Text with plain line ends and without blank space around it."""
    if not isinstance(given, str):
        raise ConfigurationError(f"{field} must be text, got {given!r:.80}; put it in quotes")
    text = given.replace("\r\n", "\n").replace("\r", "\n").strip()
    if not text:
        raise ConfigurationError(f"{field} is empty; write some text")
    _refuse_odd_characters(text, field)
    return text


def _refuse_odd_characters(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{field} holds half of a character") from None
    if "\0" in text:
        raise ConfigurationError(f"{field} holds a NUL character; remove it")


def checked_names(given: object, field: str) -> tuple[str, ...]:
    """Several names, each once."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{field} wants several names, got {given!r:.80}")
    names: list[str] = []
    for entry in cast("Iterable[object]", given):
        name = line_of_text(entry, f"a name in {field}")
        if split_names(name) != (name,):
            raise ConfigurationError(f"a name in {field} holds a comma: {name!r:.80}; split it")
        names.append(name)
    return tuple(dict.fromkeys(names))


def split_names(text: str, *, at_blanks: bool = False) -> tuple[str, ...]:
    """Names with commas or line breaks between them, or any blanks, but not those within brackets.

    A bracket that is never closed keeps the rest, so that nothing is named by mistake.

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


def normal_name(key: str, aliases: Mapping[str, str]) -> str:
    """A field's name as we write it: ``disallowedTools`` and ``Disallowed-Tools`` are one."""
    name = _WORD_BREAK.sub("_", str(key).strip()).lower()
    return aliases.get(name, name)


def check_budget(budget: object) -> None:
    """Refuse what is no budget, and amounts that are no numbers."""
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
    """A copy of named values, in the values that all file formats have."""
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{field} wants named values, got {given!r:.80}")
    return cast("dict[str, Any]", plain_value_of(cast("object", given), field, 0))


def plain_value_of(given: object, field: str, depth: int) -> Any:
    """A copy in the values that all file formats have."""
    if depth > MAX_DEPTH:
        raise ConfigurationError(f"{field} is nested deeper than {MAX_DEPTH} levels")
    match given:
        case None | bool():
            return given
        case str():
            _refuse_odd_characters(given, field)
            return str(given)
        case int() if abs(given) <= LARGEST_INTEGER:
            return given
        case float() if isfinite(given):
            return given
        case list() | tuple():
            items = cast("Iterable[object]", given)
            return [plain_value_of(item, field, depth + 1) for item in items]
        case Mapping():
            fields = cast("Mapping[object, object]", given)
            return {
                _key(key, field): plain_value_of(fields[key], field, depth + 1) for key in fields
            }
        case _:
            raise ConfigurationError(
                f"{field} holds {given!r:.80}; use text, numbers, booleans, lists and mappings"
            )


def _key(key: object, field: str) -> str:
    if not isinstance(key, str):
        raise ConfigurationError(f"{field} has the key {key!r:.80}; use text")
    _refuse_odd_characters(key, field)
    return str(key)
