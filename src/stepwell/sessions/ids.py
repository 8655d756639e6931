"""Ids that follow from others, so that work which runs again after a crash adds nothing twice."""

import re
from hashlib import blake2b, sha1
from uuid import UUID, uuid5

from msgspec import json

_NAMESPACE = UUID("5e5510f2-7d3e-5c0a-9c55-57e9e11a0006")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHARED = 18
"""Characters that an id near another has in common with it: eight bytes."""


def derived_id(owner: str, *parts: object) -> str:
    """The same id for the same owner and parts, another one for any others.

    >>> derived_id("e1", "step", 2) == derived_id("e1", "step", 2)
    True
    >>> derived_id("e1", "step", 2) == derived_id("e1", "step2")
    False
    """
    return str(uuid5(_NAMESPACE, _name(owner, parts).decode()))


def nearby_id(owner: str, *parts: object) -> str:
    """The same, sorted next to its owner: rows of one execution then lie together in an index, and
    a transaction that adds several writes few pages.

    >>> nearby_id("01a1ed35-2eff-75f5-ab3a-743bcec4d142", "step", 2)
    '01a1ed35-2eff-75f5-cc1d-420ffb1cc52a'
    """
    if _UUID.fullmatch(owner) is None:
        return derived_id(owner, *parts)
    digest = sha1(_name(owner, parts), usedforsecurity=False).hexdigest()
    return f"{owner[:_SHARED]}-{digest[:4]}-{digest[4:16]}"


def numbered_id(owner: str, number: int, *parts: object) -> str:
    """The same, sorted next to its owner by that number first: what a step adds then goes to the
    end of the owner's rows in an index.

    >>> numbered_id("01a1ed35-2eff-75f5-ab3a-743bcec4d142", 2, "step")
    '01a1ed35-2eff-75f5-0002-7d84f242e21b'
    """
    if _UUID.fullmatch(owner) is None:
        return derived_id(owner, number, *parts)
    digest = blake2b(_name(owner, (number, *parts)), digest_size=6).hexdigest()
    return f"{owner[:_SHARED]}-{number & 0xFFFF:04x}-{digest}"


def _name(owner: str, parts: tuple[object, ...]) -> bytes:
    return json.encode([owner, *map(str, parts)])
