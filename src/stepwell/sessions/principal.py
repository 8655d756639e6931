"""The principal as it is stored with an execution, so that every attempt runs as who sent it."""

from collections.abc import Iterable, Mapping
from typing import Any

from stepwell.run_context import DEFAULT_TENANT, Principal
from stepwell.sessions.records import Execution

__all__ = ["DEFAULT_TENANT", "Principal", "principal_of", "stored_principal"]


def stored_principal(who: Principal, claims: Iterable[str]) -> dict[str, Any]:
    """Return what a row keeps of a principal beside its user and tenant, with the named claims.

    >>> ada = Principal(user_id="ada", roles=("staff",), claims={"team": "a", "token": "..."})
    >>> stored_principal(ada, ["team"])
    {'roles': ['staff'], 'claims': {'team': 'a'}}
    """
    kept: dict[str, Any] = {}
    if who.roles:
        kept["roles"] = list(who.roles)
    if who.is_admin:
        kept["is_admin"] = True
    if named := {name: who.claims[name] for name in claims if name in who.claims}:
        kept["claims"] = named
    return kept


def principal_of(execution: Execution) -> Principal | None:
    """Return who an execution runs as; None if nobody sent it."""
    if execution.user_id is None:
        return None
    kept: Mapping[str, Any] = execution.principal
    return Principal(
        user_id=execution.user_id,
        tenant_id=execution.tenant_id,
        roles=tuple(kept.get("roles", ())),
        is_admin=kept.get("is_admin", False),
        claims=kept.get("claims", {}),
    )
