"""One rule for what a tool's result looks like: as JSON data in the state, as text to the model."""

import json as stdlib_json
import math
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct, json, to_builtins

from stepwell.state import AgentState
from stepwell.text import is_encodable, map_json, replace_half_characters, truncate_with_note

_PLAIN = (str, int, bool)
_CONTAINERS = (dict, list, tuple)
_DEEPEST = 64
DEFAULT_RESULT_CHARACTERS = 1_000_000
_LEAST_RESULT_CHARACTERS = 1_000
"""Below that the note would take the room of the result."""
RESULT_LIMIT_RULE = f"max_result_characters must be a number, {_LEAST_RESULT_CHARACTERS} or more"


def json_value(value: Any) -> Any:
    """The value as JSON data; objects that JSON does not know become what pydantic makes of them.

    >>> json_value({"when": (1, 2)})
    {'when': [1, 2]}
    """
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, AgentState):
        return value.final_response
    if type(value) in _CONTAINERS:
        try:
            return _copied_json(value)
        except (_OtherTypeError, UnicodeEncodeError):
            pass  # pydantic knows more types, and says what is wrong
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(value, fallback=_fallback)
    try:
        stdlib_json.dumps(plain, allow_nan=False)
    except ValueError:
        return map_json(plain, _replace_infinite)
    return plain


class _OtherTypeError(TypeError):
    """Raised for a value that is not plain JSON data."""


def _copied_json(value: Any, depth: int = 0) -> Any:
    """The same JSON data in containers of its own. Does without pydantic, which takes long to
    load."""
    if value is None or type(value) in _PLAIN:
        return value
    kind = cast("type[object]", type(value))
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if (kind is list or kind is tuple) and depth < _DEEPEST:
        return [_copied_json(item, depth + 1) for item in cast("list[Any]", value)]
    if kind is not dict or depth == _DEEPEST:
        raise _OtherTypeError
    copy: dict[str, Any] = {}
    for key, item in cast("dict[Any, Any]", value).items():
        if type(key) is not str:
            raise _OtherTypeError
        if not key.isascii():
            key.encode()
        copy[key] = _copied_json(item, depth + 1)
    return copy


def format_result(value: Any) -> tuple[Any, str]:
    """The value as JSON data, and as the text the model sees.

    >>> format_result((1, None))
    ([1, None], '[1,null]')
    """
    plain = json_value(value)
    try:
        text = as_text(plain)
        if is_encodable(text):
            return plain, text
    except UnicodeEncodeError:
        pass
    plain = map_json(plain, _replace_half_characters)
    return plain, as_text(plain)


def as_text(value: Any) -> str:
    """JSON data as the model sees it: text as is, the rest as compact JSON.

    >>> as_text("plain"), as_text(None), as_text({"a": [1, True]})
    ('plain', 'null', '{"a":[1,true]}')
    """
    return value if type(value) is str else json.encode(value).decode()


def truncate_result(text: str, limit: int, tool: str) -> str:
    """The beginning of a text and a note, together ``limit`` characters at most.

    >>> cut = truncate_result("x" * 5_000, 1_000, "search")
    >>> len(cut) <= 1_000
    True
    >>> cut[cut.index("[") : cut.index(" The limit")]
    '[4,152 more characters; ask for less at once.'
    """
    if len(text) <= limit:
        return text
    hint = (
        f"ask for less at once. The limit is max_result_characters={limit}; a developer can raise "
        f"it for tool {tool!r:.80} or for the agent."
    )
    note = truncate_with_note(text, 0, hint)
    return truncate_with_note(text, limit - len(note), hint)


def is_result_limit(value: object) -> bool:
    """Whether that can be a limit of results."""
    return type(value) is int and value >= _LEAST_RESULT_CHARACTERS


def _replace_half_characters(value: Any) -> Any:
    return replace_half_characters(value) if isinstance(value, str) else value


def _replace_infinite(value: Any) -> Any:
    """JSON has no infinities and no NaN."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _fallback(value: Any) -> Any:
    if isinstance(value, AgentState):
        return value.final_response
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, Struct):
        return to_builtins(value, enc_hook=json_value)
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and attributes:
        public = cast("dict[str, Any]", attributes)
        return {name: item for name, item in public.items() if not name.startswith("_")}
    return str(value)
