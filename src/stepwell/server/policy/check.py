"""Compares the policy table with the routes of an app, and gives each route its policy."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.routing import Mount

from stepwell.errors import ConfigurationError
from stepwell.server.policy.guard import access
from stepwell.server.policy.table import POLICIES, Needs, Policy, RouteKey

if TYPE_CHECKING:
    from fastapi import FastAPI  # so that a process without HTTP does not load it


class FoundRoute(Struct, frozen=True):
    """One method of one route of an app."""

    key: RouteKey
    endpoint: Any
    is_guarded: bool
    """Whether it depends on ``access``."""


def routes_of(app: "FastAPI") -> Iterator[FoundRoute]:
    """Yield every route of an app, including those of its routers, once per method."""
    from fastapi.routing import iter_route_contexts

    for context in iter_route_contexts(app.routes):
        route: Any = context.original_route
        path = context.path or ""
        guarded = _depends_on_access(getattr(context, "dependant", None))
        if isinstance(route, Mount):
            yield FoundRoute(("MOUNT", path), route, is_guarded=False)
            continue
        methods = context.methods or {"WEBSOCKET"}
        # Starlette adds HEAD to GET; it has the same policy.
        for method in sorted(methods - {"HEAD"} or methods):
            yield FoundRoute((method, path), context.endpoint, guarded)


def check_policies(app: "FastAPI", policies: Mapping[RouteKey, Policy] = POLICIES) -> None:
    """Raise ``ConfigurationError`` unless routes and policies match; else give the guard its
    table."""
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
                f"{_route_name(one.key)} shares its function with a route that has another policy: "
                "give each its own"
            )


def _find_missing(found: tuple[FoundRoute, ...], policies: Mapping[RouteKey, Policy]) -> list[str]:
    return [f"{_route_name(one.key)} has no policy" for one in found if one.key not in policies]


def _find_duplicates(
    found: tuple[FoundRoute, ...], _policies: Mapping[RouteKey, Policy]
) -> list[str]:
    seen = Counter(one.key for one in found)
    return [f"{_route_name(key)} exists {times} times" for key, times in seen.items() if times > 1]


def _find_unused(found: tuple[FoundRoute, ...], policies: Mapping[RouteKey, Policy]) -> list[str]:
    there = {one.key for one in found}
    return [
        f"the policy of {_route_name(key)} has no route" for key in policies if key not in there
    ]


def _find_unguarded(
    found: tuple[FoundRoute, ...], policies: Mapping[RouteKey, Policy]
) -> list[str]:
    faults: list[str] = []
    for one in found:
        policy = policies.get(one.key)
        if policy is None:
            continue
        if policy.needs is Needs.PUBLIC and one.is_guarded:
            faults.append(f"{_route_name(one.key)} is public and must not depend on access")
        if policy.needs is not Needs.PUBLIC and not one.is_guarded:
            faults.append(f"{_route_name(one.key)} must depend on stepwell.server.policy.access")
    return faults


def _depends_on_access(dependant: Any) -> bool:
    if dependant is None:
        return False
    return dependant.call is access or any(
        _depends_on_access(inner) for inner in dependant.dependencies
    )


def _route_name(key: RouteKey) -> str:
    return f"{key[0]} {key[1]}"


_CHECKS = (_find_missing, _find_duplicates, _find_unused, _find_unguarded)
