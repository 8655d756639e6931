"""Parses YAML to plain values of limited size: text, numbers, booleans, null, lists and mappings.

PyYAML only provides the events. No tag creates an object, dates and ``yes``/``no`` stay text, and
the size of expanded aliases is checked before they expand. Never opens a file.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.text import HALF_CHARACTER, is_encodable

MAX_DEPTH = 32
"""Limit of nesting."""

MAX_WEIGHT = 2 * 1024 * 1024
"""Limit of the characters of all values, aliases expanded, plus ``NODE_WEIGHT`` per value."""

NODE_WEIGHT = 16

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,30}(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_CORE = "tag:yaml.org,2002:"
_READ_AS_WRITTEN = {None, *(f"{_CORE}{kind}" for kind in ("null", "bool", "int", "float"))}
_TEXT_TAGS = {"!", f"{_CORE}str"}
_ESCAPED_LINES = re.compile(r"\\n(?:\\n|<)")


class DefinitionError(ConfigurationError):
    """Raised for an invalid definition. The message names the line, if known."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class NotYamlError(DefinitionError):
    """Raised for invalid YAML that a repair may fix."""


class _Scalar(Struct, frozen=True):
    """A scalar as written, before it is known whether it is a key or a value."""

    text: str
    is_plain: bool
    tag: str | None
    line: int


class _Open(Struct):
    """A list or mapping in progress."""

    into: Any
    anchor: str | None
    weight_before: int
    key: str | None = None
    merges: bool = False
    key_lines: dict[str, int] = {}


def parse_yaml(text: str, *, first_line: int = 1) -> Any:
    """Parse the single document in a text. ``first_line`` is the number of its first line.

    >>> parse_yaml("{name: no, since: 2024-01-01, tools: [a, 2]}")
    {'name': 'no', 'since': '2024-01-01', 'tools': ['a', 2]}
    """
    return _Reader(first_line).document(text)


class _Reader:
    """One pass over the events of a text, with a stack instead of recursion."""

    def __init__(self, first_line: int) -> None:
        self._first_line = first_line
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._weight = 0
        self._result: Any = None
        self._documents = 0

    def document(self, text: str) -> Any:
        for event in self._events(text):
            self._handle(event)
        return self._result

    def _events(self, text: str) -> "Iterator[Any]":
        import yaml

        # The pure Python loader is many times slower; it is the fallback without libyaml.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            yield from cast("Iterator[Any]", yaml.parse(text, Loader=loader))  # pyright: ignore[reportUnknownMemberType]
        except yaml.MarkedYAMLError as error:
            line = None if error.problem_mark is None else self._line(error.problem_mark)
            raise NotYamlError(f"not YAML: {error.problem or error.context}", line=line) from None
        except (yaml.YAMLError, UnicodeError) as error:
            reason = str(error).splitlines()[0] if str(error) else "unreadable"
            raise NotYamlError(f"not YAML: {reason}") from None

    def _line(self, mark: Any) -> int:
        return self._first_line + int(mark.line)

    def _handle(self, event: Any) -> None:
        import yaml

        line = self._line(event.start_mark) if event.start_mark else self._first_line
        match event:
            case yaml.ScalarEvent():
                self._add_weight(len(event.value), line)
                if not is_encodable(event.value):
                    raise DefinitionError(f"contains {HALF_CHARACTER}", line=line)
                is_plain = event.style in (None, "")
                scalar = _Scalar(event.value, is_plain, event.tag, line)
                self._place(scalar, line, event.anchor)
            case yaml.AliasEvent():
                self._place_alias(event.anchor, line)
            case yaml.SequenceStartEvent():
                self._open([], event, line)
            case yaml.MappingStartEvent():
                self._open({}, event, line)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._close()
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise DefinitionError("a second YAML document starts here; keep one", line=line)
            case _:
                pass

    def _open(self, into: Any, event: Any, line: int) -> None:
        if event.tag not in (None, "!", f"{_CORE}seq", f"{_CORE}map"):
            raise DefinitionError(f"the tag {event.tag!r} is not supported; remove it", line=line)
        if len(self._stack) >= MAX_DEPTH:
            raise DefinitionError(f"nested deeper than {MAX_DEPTH} levels", line=line)
        if self._stack and self._expects_key():
            raise NotYamlError("a list or mapping can't be the name of a field", line=line)
        self._stack.append(_Open(into, event.anchor, self._weight))
        self._add_weight(0, line)

    def _close(self) -> None:
        done = self._stack.pop()
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.into, self._weight - done.weight_before)
        self._put(done.into)

    def _place(self, scalar: _Scalar, line: int, anchor: str | None) -> None:
        if self._stack and self._expects_key():
            self._name_field(scalar, line)
            return
        value = _resolve(scalar)
        if anchor is not None:
            self._anchors[anchor] = (value, NODE_WEIGHT + len(scalar.text))
        self._put(value)

    def _place_alias(self, anchor: str, line: int) -> None:
        known = self._anchors.get(anchor)
        if any(anchor == within.anchor for within in self._stack):
            raise DefinitionError(f"{anchor!r} contains itself", line=line)
        if known is None:
            # A repair may help: `tools: *Bash` is meant as text.
            raise NotYamlError(f"not YAML: found undefined alias '{anchor}'", line=line)
        value, weight = known
        self._add_weight(weight, line)
        if self._stack and self._expects_key():
            raise NotYamlError("an alias can't be the name of a field", line=line)
        self._put(value)

    def _expects_key(self) -> bool:
        top = self._stack[-1]
        return isinstance(top.into, dict) and top.key is None

    def _name_field(self, scalar: _Scalar, line: int) -> None:
        top = self._stack[-1]
        name = scalar.text
        top.key, top.merges = name, scalar.is_plain and name == "<<"
        if name in top.key_lines and not top.merges:
            first = top.key_lines[name]
            raise DefinitionError(
                f"{name!r:.80} is given twice, first in line {first}; keep one", line=line
            )
        top.key_lines[name] = line

    def _put(self, value: Any) -> None:
        if not self._stack:
            self._result = value
            return
        top = self._stack[-1]
        if top.key is None:
            cast("list[Any]", top.into).append(value)
            return
        key, top.key = top.key, None
        fields = cast("dict[str, Any]", top.into)
        if top.merges and isinstance(value, dict):
            merged = cast("dict[str, Any]", value)
            fields.update({name: merged[name] for name in merged if name not in fields})
        else:
            fields[key] = value

    def _add_weight(self, weight: int, line: int) -> None:
        self._weight += NODE_WEIGHT + weight
        if self._weight > MAX_WEIGHT:
            raise DefinitionError("contains too many values, with aliases expanded", line=line)


def _resolve(scalar: _Scalar) -> Any:
    """Return the value of a scalar. Quoted text is text."""
    if scalar.tag in _TEXT_TAGS:
        return scalar.text
    if scalar.tag not in _READ_AS_WRITTEN:
        raise DefinitionError(
            f"the tag {scalar.tag!r} is not supported; remove it", line=scalar.line
        )
    if not scalar.is_plain and scalar.tag is None:
        return scalar.text
    return plain_value(scalar.text)


def plain_value(text: str) -> Any:
    """Return the value of unquoted text: null, a boolean, a number, or the text itself.

    Many public files join lines by ``\\n``; in unquoted text these become line breaks.

    >>> [plain_value(text) for text in ("~", "true", "12", "1.5", "007", "off", "2024-01-01")]
    [None, True, 12, 1.5, '007', 'off', '2024-01-01']
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return restore_lines(text)


def restore_lines(text: str) -> str:
    """Replace literal ``\\n`` by line breaks in text that was joined by them."""
    return text.replace("\\n", "\n") if _ESCAPED_LINES.search(text) else text
