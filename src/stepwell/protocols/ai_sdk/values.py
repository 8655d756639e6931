"""Makes JSON data safe for the AI SDK's client."""

import math
from collections.abc import Mapping
from typing import Any, cast

from stepwell.text import replace_half_characters

LARGEST_EXACT = 2**53 - 1
"""Larger integers lose digits in JavaScript, so they are sent as text."""


def sendable(value: Any) -> Any:
    """Return the value as JSON that a JavaScript client reads without loss or error.

    >>> sendable({"id": 2**60, "__proto__": 1, "part": float("nan")})
    {'id': '1152921504606846976', '__proto___': 1, 'part': 'nan'}
    """
    match value:
        case None | bool():
            return value
        case str():
            return sendable_text(value)
        case int():
            return value if abs(value) <= LARGEST_EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {_key(key, item): sendable(item) for key, item in items}
        case list() | tuple():
            return [sendable(item) for item in cast("list[Any]", value)]
        case _:
            return sendable_text(str(value))


def sendable_text(text: str) -> str:
    """Return the text without half characters, which can't be encoded."""
    return replace_half_characters(str(text))


def _key(key: Any, item: Any) -> str:
    """Return the key; the client rejects keys that could change the prototype of its objects."""
    name = sendable_text(str(key))
    is_refused = name == "__proto__" or (
        name == "constructor" and isinstance(item, Mapping) and "prototype" in item
    )
    return f"{name}_" if is_refused else name
