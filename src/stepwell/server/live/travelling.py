"""What of a principal is signed and handed to a browser, which brings it back later."""

import logging
from collections.abc import Iterable

from msgspec import json
from msgspec.structs import replace

from stepwell.sessions.principal import Principal

logger = logging.getLogger("stepwell.server")

_ALWAYS = ("exp",)
"""By which it is seen that a token has run out."""


def as_it_travels(who: Principal, claims: Iterable[str]) -> Principal:
    """Who it is, with the named claims only. One that can't be written as JSON is left out.

    >>> ada = Principal(user_id="ada", claims={"exp": 7, "salary": 1, "team": "a"})
    >>> as_it_travels(ada, ["team"]).claims
    {'exp': 7, 'team': 'a'}
    """
    named = {name: who.claims[name] for name in (*_ALWAYS, *claims) if name in who.claims}
    return replace(who, claims={name: one for name, one in named.items() if _travels(name, one)})


def _travels(name: str, claim: object) -> bool:
    try:
        json.encode(claim)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        logger.warning("claim %r can't be written as JSON (%s); it is left out", name, error)
        return False
    return True
