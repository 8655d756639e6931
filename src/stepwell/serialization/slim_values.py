"""Any value as JSON data that is fit to show: texts cut, secrets hidden, every number finite.

Called for metadata and tool arguments. What JSON can't tell is named by its class.
"""

import dataclasses
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, cast

from msgspec import UNSET, Struct, structs

from stepwell.messages import History
from stepwell.secrets import HIDDEN, Secret
from stepwell.state import AgentState
from stepwell.text import replace_half_characters, truncate_after
from stepwell.tools.result_text import json_value

LONGEST_NAME = 200
"""Characters of a key or a tool's name: cutting them like content could make them collide."""

DEEPEST = 64
MOST_VALUES = 10_000
"""Values shown of one piece of metadata or of one call's arguments."""

LARGEST_NUMBER_BITS = 4096
"""Far below the number of digits that Python refuses to write as text."""

LEFT_OUT = "[left out]"
TOO_DEEP = "[nested too deep]"
CIRCULAR = "[circular]"

_LISTS = (list, tuple, set, frozenset, deque, History)


def clip(text: str, limit: int) -> str:
    """The text as it can be encoded, at most ``limit`` characters of it, then three dots.

    >>> clip("hello", 4), clip("hell", 4)
    ('hell...', 'hell')
    """
    return truncate_after(replace_half_characters(text), limit)


def clip_name(text: str) -> str:
    """A key or a tool's name, of a length that fits one."""
    return clip(text, LONGEST_NAME)


def value_to_json(value: Any, limit: int) -> Any:
    """The value as JSON data whose texts have at most ``limit`` characters.

    >>> value_to_json({"when": (1, float("nan")), "text": "hello"}, 4)
    {'when': [1, 'nan'], 'text': 'hell...'}
    """
    return _Conversion(limit).value(value)


def mapping_to_json(values: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The same for a mapping, each of whose values has its own bound on size."""
    return {_key(key): value_to_json(value, limit) for key, value in values.items()}


class _Conversion:
    """One walk through one value; knows what it is inside of, and how much it has seen."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = MOST_VALUES
        self._inside: list[Any] = []
        self._is_in_object = False

    def value(self, value: Any) -> Any:
        """The value as JSON data."""
        self._left -= 1
        made = self._convert(value)
        return self._text(made) if isinstance(made, str) else made

    def _text(self, text: str) -> str:
        """Placeholders are cut like any text, so that a snapshot of a restored state is the same;
        only a secret's must stay, since it is known again by it."""
        return HIDDEN if text == HIDDEN else clip(text, self._limit)

    def _convert(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if _is_secret(value):
            return HIDDEN
        if isinstance(value, Enum):
            return self.value(value.value)
        if isinstance(value, str):
            return value
        if isinstance(value, int):
            too_large = value.bit_length() > LARGEST_NUMBER_BITS
            return f"[number of {value.bit_length()} bits]" if too_large else int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(float(value))
        if isinstance(value, AgentState):  # what it says, never what it is
            return self.value(value.final_response)
        return self._convert_nested(value)

    def _convert_nested(self, value: Any) -> Any:
        if any(value is outer for outer in self._inside):
            return CIRCULAR
        if len(self._inside) >= DEEPEST:
            return TOO_DEEP
        self._inside.append(value)
        try:
            return self._members(value)
        finally:
            self._inside.pop()

    def _members(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[Any, Any]", value).items())
        if isinstance(value, _LISTS):
            return self._list(cast("Iterable[Any]", value))
        if isinstance(value, type | Iterator):  # reading an iterator would use it up
            return _class_name(value)
        if isinstance(value, Struct):
            fields = structs.fields(value)
            return self._mapping((f.encode_name, getattr(value, f.name, UNSET)) for f in fields)
        if dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            return self._mapping((f.name, getattr(value, f.name, UNSET)) for f in fields)
        return self._foreign(value)

    def _list(self, items: Iterable[Any]) -> list[Any]:
        made: list[Any] = []
        for item in items:
            if self._left <= 0:
                made.append(self._text(LEFT_OUT))
                break
            made.append(self.value(item))
        return made

    def _mapping(self, pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, item in pairs:
            if self._left <= 0:
                made[LEFT_OUT] = self._text(LEFT_OUT)
                break
            if item is not UNSET:
                made[_key(key)] = self.value(item)
        return made

    def _foreign(self, value: Any) -> Any:
        from pydantic import BaseModel

        try:
            if isinstance(value, BaseModel):
                # As Python data, in which secrets can still be distinguished from other texts.
                return self.value(value.model_dump(by_alias=True, warnings=False))
            public = _public(value)
            if not public:
                return self.value(json_value(value))
        except (ValueError, TypeError, RecursionError):  # bytes that are no text, odd serializers
            return _class_name(value)
        if self._is_in_object:  # objects lead to all the others of a program
            return _class_name(value)
        self._is_in_object = True
        try:
            return self._mapping(public.items())
        finally:
            self._is_in_object = False


def _is_secret(value: Any) -> bool:
    """Ours, such as a provider's key, or pydantic's: ``SecretStr``, ``SecretBytes``, ``Secret``."""
    kind = cast("type[object]", type(value))
    return issubclass(kind, Secret) or hasattr(kind, "get_secret_value")


def _public(value: Any) -> dict[str, Any]:
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        return {}
    given = cast("dict[str, Any]", attributes)
    return {key: item for key, item in given.items() if not key.startswith("_")}


def _class_name(value: Any) -> str:
    kind: type = value if isinstance(value, type) else type(value)
    return f"[{clip_name(kind.__name__)}]"


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        key = key.value
    if _is_secret(key):
        return HIDDEN
    return clip_name(key if isinstance(key, str) else str(value_to_json(key, LONGEST_NAME)))
