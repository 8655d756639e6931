"""A route without a policy fails the build."""

from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from starlette.routing import Mount

from stepwell.errors import ConfigurationError
from stepwell.server.policy import Access, Needs, Of, Policy, access, check_policies, routes_of

Guarded = Annotated[Access, Depends(access)]
OWN = Policy(Needs.OWNER, "sessions.read", Of.SESSION)
OPEN = Policy(Needs.PUBLIC, "health")


async def guarded(access: Guarded) -> str:
    return access.principal.user_id


async def unguarded() -> str:
    return "anybody"


def bare() -> FastAPI:
    return FastAPI(openapi_url=None)


def test_routes_and_policies_that_match_pass_also_in_included_routers() -> None:
    inner, outer, app = APIRouter(prefix="/sessions"), APIRouter(prefix="/v1"), bare()
    inner.add_api_route("/{session_id}", guarded, methods=["GET", "PATCH"])
    outer.include_router(inner)
    app.include_router(outer)
    app.add_api_route("/health", unguarded)
    path = "/v1/sessions/{session_id}"
    check_policies(app, {("GET", path): OWN, ("PATCH", path): OWN, ("GET", "/health"): OPEN})
    assert app.state.policies == {
        ("GET", guarded): OWN,
        ("PATCH", guarded): OWN,
    }


def test_all_faults_are_told_at_once() -> None:
    app = bare()
    app.add_api_route("/a", unguarded)
    app.add_api_route("/b", unguarded, methods=["POST"])
    app.add_api_route("/c", guarded)
    wanted = {("POST", "/b"): OWN, ("GET", "/c"): OPEN, ("GET", "/d"): OPEN}
    with pytest.raises(ConfigurationError) as raised:
        check_policies(app, wanted)
    text = str(raised.value)
    assert "GET /a has no policy" in text
    assert "POST /b must depend on stepwell.server.policy.access" in text
    assert "GET /c is public and must not depend on access" in text
    assert "the policy of GET /d has no route" in text


def test_sockets_mounts_and_plain_routes_need_policies_too() -> None:
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()

    app = bare()
    app.add_api_websocket_route("/socket", socket)
    app.router.routes.append(Mount("/static", app=bare()))
    app.add_route("/plain", unguarded)
    keys = [one.key for one in routes_of(app)]
    assert keys == [("WEBSOCKET", "/socket"), ("MOUNT", "/static"), ("GET", "/plain")]
    with pytest.raises(ConfigurationError, match="WEBSOCKET /socket has no policy") as raised:
        check_policies(app, {})
    assert "MOUNT /static" in str(raised.value)
    assert "GET /plain" in str(raised.value)
    with pytest.raises(ConfigurationError, match="MOUNT /static must depend"):
        check_policies(app, dict.fromkeys(keys, OWN))
    check_policies(app, dict.fromkeys(keys, OPEN))


def test_a_dependency_of_a_dependency_or_of_a_router_guards_as_well() -> None:
    async def session(access: Guarded) -> object:
        return access.session

    async def deep(session: Annotated[object, Depends(session)]) -> str:
        return "x"

    app, router = bare(), APIRouter(dependencies=[Depends(access)])
    app.add_api_route("/deep", deep)
    router.add_api_route("/routed", unguarded)
    app.include_router(router)
    check_policies(app, {("GET", "/deep"): OWN, ("GET", "/routed"): OWN})


def test_a_function_behind_two_policies_is_refused() -> None:
    app = bare()
    app.add_api_route("/a", guarded)
    app.add_api_route("/b", guarded)
    other = Policy(Needs.OPERATOR, "all")
    with pytest.raises(ConfigurationError, match="shares its function"):
        check_policies(app, {("GET", "/a"): OWN, ("GET", "/b"): other})


def test_the_pages_that_fastapi_adds_by_itself_are_routes_too() -> None:
    with pytest.raises(ConfigurationError, match="GET /docs has no policy"):
        check_policies(FastAPI(), {})


def test_a_route_that_is_there_twice_is_refused() -> None:
    app = bare()
    app.add_api_route("/a", unguarded)
    app.add_api_route("/a", unguarded)
    with pytest.raises(ConfigurationError, match="GET /a exists 2 times"):
        check_policies(app, {("GET", "/a"): OPEN})
