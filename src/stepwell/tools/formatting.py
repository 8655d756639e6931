"""One rule for what a tool's result looks like: as JSON data in the state, as text to the model."""

import json as stdlib_json
import math
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct, json, to_builtins

from stepwell.state import AgentState

_PLAIN = (str, int, bool)


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
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(value, fallback=_fallback)
    try:
        stdlib_json.dumps(plain, allow_nan=False)
    except ValueError:
        return _with_words_for_numbers(plain)
    return plain


def shown(value: Any) -> tuple[Any, str]:
    """The value as JSON data, and as the text the model sees.

    >>> shown((1, None))
    ([1, None], '[1,null]')
    """
    plain = json_value(value)
    try:
        text = as_text(plain)
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, as in file names, can't be sent or stored
        plain = _without_surrogates(plain)
        text = as_text(plain)
    return plain, text


def as_text(value: Any) -> str:
    """JSON data as the model sees it: text as is, the rest as compact JSON.

    >>> as_text("plain"), as_text(None), as_text({"a": [1, True]})
    ('plain', 'null', '{"a":[1,true]}')
    """
    return value if type(value) is str else json.encode(value).decode()


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case list():
            return [_without_surrogates(item) for item in cast("list[Any]", value)]
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {_without_surrogates(key): _without_surrogates(item) for key, item in items}
        case _:
            return value


def _with_words_for_numbers(value: Any) -> Any:
    """JSON has no infinities, and nothing for what is not a number."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case list():
            return [_with_words_for_numbers(item) for item in cast("list[Any]", value)]
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {key: _with_words_for_numbers(item) for key, item in items}
        case _:
            return value


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
