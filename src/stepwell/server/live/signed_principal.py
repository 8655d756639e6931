"""The part of a principal that is signed and given to a browser, which sends it back."""

import logging
from collections.abc import Iterable

from msgspec import json
from msgspec.structs import replace

from stepwell.sessions.principal import Principal

logger = logging.getLogger("stepwell.server")

_ALWAYS = ("exp",)
"""Always included, to check the expiry of a token."""


def signable_principal(who: Principal, claims: Iterable[str]) -> Principal:
    """Return the principal with the named claims only, without those that are not JSON.

    >>> ada = Principal(user_id="ada", claims={"exp": 7, "salary": 1, "team": "a"})
    >>> signable_principal(ada, ["team"]).claims
    {'exp': 7, 'team': 'a'}
    """
    named = {name: who.claims[name] for name in (*_ALWAYS, *claims) if name in who.claims}
    return replace(who, claims={name: one for name, one in named.items() if _is_json(name, one)})


def _is_json(name: str, claim: object) -> bool:
    try:
        json.encode(claim)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        logger.warning("claim %r can't be written as JSON (%s); it is left out", name, error)
        return False
    return True
