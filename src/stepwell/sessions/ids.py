"""Ids that follow from others, so that work which runs again after a crash adds nothing twice."""

from uuid import UUID, uuid5

from msgspec import json

_NAMESPACE = UUID("5e5510f2-7d3e-5c0a-9c55-57e9e11a0006")


def derived_id(owner: str, *parts: object) -> str:
    """The same id for the same owner and parts, another one for any others.

    >>> derived_id("e1", "step", 2) == derived_id("e1", "step", 2)
    True
    >>> derived_id("e1", "step", 2) == derived_id("e1", "step2")
    False
    """
    name = json.encode([owner, *map(str, parts)]).decode()
    return str(uuid5(_NAMESPACE, name))
