"""Envelopes as compact JSON, also where a text in them is broken."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec


def json_text(value: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8. Half characters, as undecodable file names have, become question marks.

    >>> json_text({"path": "caf\\udce9"})
    b'{"path":"caf?"}'
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        return msgspec.json.encode(json.loads(text))
