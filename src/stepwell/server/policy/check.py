"""Compares the table with the routes that an app really has, and ties each route to its line."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from msgspec import Struct
from starlette.routing import Mount

from stepwell.errors import ConfigurationError
from stepwell.server.policy.guard import access
from stepwell.server.policy.table import POLICIES, Needs, Policy, RouteKey


class FoundRoute(Struct, frozen=True):
    """One method of one route of an app."""

    key: RouteKey
    endpoint: Any
    is_guarded: bool
    """Whether it depends on ``access``."""


def routes_of(app: FastAPI) -> Iterator[FoundRoute]:
    """Every route of an app, those of included routers as well, once per method."""
    for context in iter_route_contexts(app.routes):
        route: Any = context.original_route
        path = context.path or ""
        guarded = _depends_on_access(getattr(context, "dependant", None))
        if isinstance(route, Mount):
            yield FoundRoute(("MOUNT", path), route, is_guarded=False)
            continue
        methods = context.methods or {"WEBSOCKET"}
        # Starlette adds HEAD to GET by itself; it gives away less and has the same policy.
        for method in sorted(methods - {"HEAD"} or methods):
            yield FoundRoute((method, path), context.endpoint, guarded)


def check_policies(app: FastAPI, policies: Mapping[RouteKey, Policy] = POLICIES) -> None:
    """Refuse an app whose routes and policies don't match; otherwise its guard knows them."""
    found = tuple(routes_of(app))
    faults = [fault for look in _CHECKS for fault in look(found, policies)]
    if faults:
        raise ConfigurationError(
            "the routes do not match stepwell.server.policy.table: " + "; ".join(faults)
        )
    guarded = [one for one in found if one.is_guarded]
    app.state.policies = {(one.key[0], one.endpoint): policies[one.key] for one in guarded}
    for one in guarded:
        if app.state.policies[one.key[0], one.endpoint] != policies[one.key]:
            raise ConfigurationError(
                f"{_named(one.key)} shares its function with a route that has another policy: "
                "give each its own"
            )


def _missing(found: tuple[FoundRoute, ...], policies: Mapping[RouteKey, Policy]) -> list[str]:
    return [f"{_named(one.key)} has no policy" for one in found if one.key not in policies]


def _doubled(found: tuple[FoundRoute, ...], _policies: Mapping[RouteKey, Policy]) -> list[str]:
    seen = Counter(one.key for one in found)
    return [f"{_named(key)} is there {times} times" for key, times in seen.items() if times > 1]


def _left_over(found: tuple[FoundRoute, ...], policies: Mapping[RouteKey, Policy]) -> list[str]:
    there = {one.key for one in found}
    return [f"the policy of {_named(key)} has no route" for key in policies if key not in there]


def _unguarded(found: tuple[FoundRoute, ...], policies: Mapping[RouteKey, Policy]) -> list[str]:
    faults: list[str] = []
    for one in found:
        policy = policies.get(one.key)
        if policy is None:
            continue
        if policy.needs is Needs.PUBLIC and one.is_guarded:
            faults.append(f"{_named(one.key)} is public and must not depend on access")
        if policy.needs is not Needs.PUBLIC and not one.is_guarded:
            faults.append(f"{_named(one.key)} must depend on stepwell.server.policy.access")
    return faults


def _depends_on_access(dependant: Any) -> bool:
    if dependant is None:
        return False
    return dependant.call is access or any(
        _depends_on_access(inner) for inner in dependant.dependencies
    )


def _named(key: RouteKey) -> str:
    return f"{key[0]} {key[1]}"


_CHECKS = (_missing, _doubled, _left_over, _unguarded)
