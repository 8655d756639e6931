"""JSON data: encode it whatever its texts hold, copy it with changes, and visit every value."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from stepwell.text.characters import replace_half_characters


def json_bytes(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    r"""Encode a value as compact JSON in UTF-8, with half characters replaced. ``default`` converts
    what JSON has no type for.

    >>> json_bytes({"path": "caf\udce9", "big": 2**70})
    b'{"path":"caf\xef\xbf\xbd","big":1180591620717411303424}'
    """
    try:
        return msgspec.json.encode(value, enc_hook=default)
    except (UnicodeEncodeError, OverflowError):  # msgspec writes integers of up to 64 bits
        plain = json.loads(json.dumps(value, default=default), parse_constant=lambda _: None)
        compact = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
        return replace_half_characters(compact).encode()


def map_json(value: Any, change: Callable[[Any], Any]) -> Any:
    """Copy JSON data with ``change`` applied to every key and to every value that is no object or
    list.

    >>> map_json({"a": ["b", 1]}, lambda leaf: leaf * 2)
    {'aa': ['bb', 2]}
    """
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {change(key): map_json(item, change) for key, item in items}
    if isinstance(value, list | tuple):
        return [map_json(item, change) for item in cast("list[Any]", value)]
    return change(value)


def walk_json(value: Any) -> Iterator[Any]:
    """Yield every key and every value of JSON data, in no particular order, at any depth.

    >>> [item for item in walk_json({"a": ["b", 1]}) if not isinstance(item, dict | list)]
    [1, 'b', 'a']
    """
    rest: list[Any] = [value]
    while rest:
        item = rest.pop()
        yield item
        if isinstance(item, Mapping):
            fields = cast("Mapping[Any, Any]", item)
            rest += fields.keys()
            rest += fields.values()
        elif isinstance(item, list | tuple):
            rest += cast("list[Any]", item)
