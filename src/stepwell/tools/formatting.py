"""One rule for what a tool's result looks like: as JSON data in the state, as text to the model."""

import json as stdlib_json
import math
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct, json, to_builtins

from stepwell.state import AgentState

_PLAIN = (str, int, bool)
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
        if not text.isascii():  # known without looking, where encoding would copy a large text
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


def truncate_result(text: str, limit: int, tool: str) -> str:
    """The beginning of a text and a note, together ``limit`` characters at most.

    >>> cut = truncate_result("x" * 5_000, 1_000, "search")
    >>> len(cut) <= 1_000
    True
    >>> cut[cut.index("[") : cut.index(".")]
    '[Truncated: 4,173 of 5,000 characters were cut'
    """
    if len(text) <= limit:
        return text

    def note(left_out: int) -> str:
        return (
            f"\n[Truncated: {left_out:,} of {len(text):,} characters were cut. Ask for less at "
            f"once. The limit is max_result_characters={limit}; a developer can raise it for tool "
            f"{tool!r:.80} or for the agent.]"
        )

    kept = limit - len(note(len(text)))
    return text[:kept] + note(len(text) - kept)


def is_result_limit(value: object) -> bool:
    """Whether that can be a limit of results."""
    return type(value) is int and value >= _LEAST_RESULT_CHARACTERS


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
