"""Envelopes as compact JSON, and texts without what UTF-8 can't hold."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec


def json_text(value: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8, also where a text in it is broken.

    >>> json_text({"path": "caf\\udce9"}).decode()
    '{"path":"caf\ufffd"}'
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = whole_characters(json.dumps(value, ensure_ascii=False))
        return msgspec.json.encode(json.loads(text))


def whole_characters(text: str) -> str:
    """Half characters, as undecodable file names have, are replaced; two halves that belong
    together are joined.

    >>> whole_characters("\\ud83d\\ude00 caf\\udce9")
    '\U0001f600 caf\ufffd'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
