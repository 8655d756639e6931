"""Repairs front matter that is not quite YAML. Pure functions, linear time."""

import re
from typing import Any

from stepwell.specs.yaml import plain_value, restore_lines

_FIELD = re.compile(r"([A-Za-z_][\w.-]{0,63})[ \t]*:(?:[ \t]+(.*))?")
_CLOSED = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|\[[^\[\]{}]*\]|\{[^\[\]{}]*\})[ \t]*(?:#.*)?"""
)
_NEEDS_QUOTES = re.compile(r"[@`%&*!?,\]}]|[-?:][ \t]|.*:[ \t]|.*:$|.*[ \t]#")
_BLOCK = re.compile(r"[|>][-+0-9]*[ \t]*(?:#.*)?")
_ESCAPES = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\x85": "\\N", "\u2028": "\\L", "\u2029": "\\P"}
)
_SPEAKERS = frozenset(
    {"user", "assistant", "human", "context", "commentary", "example", "examples"}
)
"""Speakers in the examples of descriptions. They are never fields."""

_TAG = re.compile(r"<(/?)[A-Za-z][\w-]*>")


def add_quotes(matter: str) -> tuple[str, tuple[str, ...]]:
    """Quote one-line values that YAML would misread. Return the text and the fields' names.

    Tabs that YAML does not allow become spaces.

    >>> print(add_quotes("description: Use when: always")[0])
    description: "Use when: always"
    """
    lines = matter.split("\n")
    quoted: list[str] = []
    names: list[str] = []
    for number, line in enumerate(lines):
        field = _FIELD.fullmatch(line)
        after = lines[number + 1] if number + 1 < len(lines) else ""
        value = (field[2] or "").strip() if field else ""
        if field is None or after[:1] in (" ", "\t") or not _is_misread(value):
            quoted.append(_replace_tabs(line))
            continue
        names.append(field[1])
        quoted.append(f"{field[1]}: {_quote(value)}")
    return "\n".join(quoted), tuple(names)


def _is_misread(value: str) -> bool:
    if not value or _BLOCK.fullmatch(value):
        return False
    if value[0] in "\"'[{":
        return _CLOSED.fullmatch(value) is None
    return _NEEDS_QUOTES.match(value) is not None


def _quote(value: str) -> str:
    inner = _strip_quotes(value)
    if inner != value:
        inner = inner.replace(f"\\{value[0]}", value[0])
    return f'"{restore_lines(inner).translate(_ESCAPES)}"'


def _replace_tabs(line: str) -> str:
    """Replace tabs before a value or at the start of a line, which YAML does not allow."""
    indent = len(line) - len(line.lstrip(" \t"))
    return line[:indent].replace("\t", "  ") + line[indent:].replace(":\t", ": ", 1)


def _strip_quotes(value: str) -> str:
    """Remove quotes around the whole value."""
    is_wrapped = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_wrapped else value


def fields_by_line(matter: str) -> dict[str, Any]:
    """Read ``name: value`` lines. Other lines continue the value before them.

    A field keeps its first value: a repeated name is part of a text.

    >>> fields_by_line("name: a\\ndescription: Use: it\\n<ex>\\nname: b\\n</ex>\\ntools:\\n- c")
    {'name': 'a', 'description': 'Use: it\\n<ex>\\nname: b\\n</ex>', 'tools': ['c']}
    """
    texts: dict[str, list[str]] = {}
    current: list[str] = []
    depth = 0
    for line in matter.split("\n"):
        field = _FIELD.fullmatch(line)
        name = field[1] if field else ""
        is_field = field and depth <= 0 and name.lower() not in _SPEAKERS and name not in texts
        if field and is_field:
            current = texts[name] = [(field[2] or "").strip()]
            depth = 0
        elif not line.startswith("#"):
            if line.strip() and not texts:
                return {}
            current.append(line.rstrip())
        depth += sum(-1 if closes else 1 for closes in _TAG.findall(line))
    return {name: _value(lines) for name, lines in texts.items()}


def _value(lines: list[str]) -> Any:
    first, rest = lines[0], [line.strip() for line in lines[1:] if line.strip()]
    if not first and rest and all(line.startswith("- ") for line in rest):
        return [_strip_quotes(line[2:].strip()) for line in rest]
    if _BLOCK.fullmatch(first):
        return "\n".join(line.strip() for line in lines[1:]).strip()
    if not rest:
        unwrapped = _strip_quotes(first)
        return unwrapped if unwrapped != first else plain_value(first)
    return _strip_quotes("\n".join([first, *lines[1:]]).strip())
