"""What is not theirs is answered like what does not exist."""

from types import SimpleNamespace
from typing import Annotated, Any
from urllib.parse import unquote

import httpx2
import pytest
from fastapi import Depends, FastAPI
from msgspec.structs import replace

from stepwell.server.auth import KeyRing, as_authenticator
from stepwell.server.policy import (
    Access,
    Needs,
    NotAllowedError,
    Of,
    Policy,
    access,
    channel_policy,
    check_policies,
    may_follow,
    require,
)
from stepwell.server.problems import install_problems
from stepwell.server.settings import ServerSettings
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, Session, Snapshot
from stepwell.testing import FakeClock
from tests.unit.server.auth.rows import Rows

CLOCK = FakeClock()
NOW = CLOCK.now()
PEOPLE = {
    "ada": Principal(user_id="ada", tenant_id="t1"),
    "bob": Principal(user_id="bob", tenant_id="t1"),
    "root": Principal(user_id="root", tenant_id="t1", is_admin=True),
    "ada2": Principal(user_id="ada", tenant_id="t2"),
    "root2": Principal(user_id="root", tenant_id="t2", is_admin=True),
}


def rows() -> Rows:
    found = Rows()
    times: dict[str, Any] = {"created_at": NOW, "updated_at": NOW}
    found.session_rows["s1"] = Session(
        id="s1", tenant_id="t1", user_id="ada", agent_type="a", **times
    )
    run = Execution(
        id="e1", tenant_id="t1", agent_type="a", definition_hash="", session_id="s1", **times
    )
    found.execution_rows["e1"] = run
    found.execution_rows["e2"] = replace(run, id="e2", session_id=None, user_id="ada")
    found.execution_rows["e3"] = replace(run, id="e3", session_id="gone")
    for id, owner in (("n1", "e1"), ("n2", "e2")):
        found.snapshot_rows[id] = Snapshot(
            id=id, tenant_id="t1", agent_execution_id=owner, chain_id=id, position=0,
            step_number=1, state_json="{}", created_at=NOW,
        )  # fmt: skip
    return found


def services(store: Rows, authorize: Any = None) -> Any:
    async def who(request: Any) -> Principal | None:
        return PEOPLE.get(request.headers.get("x-who", ""))

    return SimpleNamespace(
        store=store,
        authenticate=as_authenticator(who),
        authorize=authorize,
        keys=KeyRing(store, CLOCK),  # pyright: ignore[reportArgumentType]
        clock=CLOCK,
        settings=ServerSettings(metrics_tenant="t1"),
    )


async def show(access: Annotated[Access, Depends(access)]) -> dict[str, Any]:
    names = ("session", "execution", "snapshot", "key")
    found = {name: getattr(access, name) for name in names}
    return {name: thing.id for name, thing in found.items() if thing is not None}


def make_app(store: Rows, authorize: Any = None) -> FastAPI:
    app = FastAPI(openapi_url=None)
    app.state.services = services(store, authorize)
    install_problems(app)
    table = {
        "/me": Policy(Needs.SIGNED_IN, "me"),
        "/all": Policy(Needs.OPERATOR, "all"),
        "/sessions/{session_id}": Policy(Needs.OWNER, "s", Of.SESSION),
        "/executions/{execution_id}": Policy(Needs.OWNER, "e", Of.EXECUTION),
        "/executions/{execution_id}/snapshots/{snapshot_id}": Policy(Needs.OWNER, "n", Of.SNAPSHOT),
        "/keys/{key_id}": Policy(Needs.OWNER, "k", Of.KEY),
        "/sessions/{session_id}/events": Policy(Needs.OWNER, "sessions.follow", Of.SESSION),
    }
    for path in table:
        # Each route with a function of its own, as the check demands.
        async def endpoint(found: Annotated[dict[str, Any], Depends(show)]) -> dict[str, Any]:
            return found

        app.add_api_route(path, endpoint)
    check_policies(app, {("GET", path): policy for path, policy in table.items()})
    return app


async def get(app: Any, path: str, who: str = "") -> httpx2.Response:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(path, headers={"x-who": who} if who else {})


@pytest.mark.parametrize("path", ["/me", "/all", "/sessions/s1", "/sessions/none", "/keys/k"])
async def test_who_did_not_sign_in_is_asked_to(path: str) -> None:
    answer = await get(make_app(rows()), path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "not_signed_in"


THINGS = {
    "/sessions/s1": {"session": "s1"},
    "/executions/e1": {"session": "s1", "execution": "e1"},
    "/executions/e2": {"execution": "e2"},
    "/executions/e1/snapshots/n1": {"session": "s1", "execution": "e1", "snapshot": "n1"},
}


@pytest.mark.parametrize("path", THINGS)
async def test_the_owner_and_the_tenants_administrator_are_given_what_the_path_names(
    path: str,
) -> None:
    for who in ("ada", "root"):
        answer = await get(make_app(rows()), path, who)
        assert (answer.status_code, answer.json()) == (200, THINGS[path])


@pytest.mark.parametrize("path", THINGS)
@pytest.mark.parametrize("who", ["bob", "ada2", "root2"])
async def test_for_all_others_it_does_not_exist(path: str, who: str) -> None:
    store = rows()
    app = make_app(store)
    foreign = await get(app, path, who)
    foreign_look_ups, store.looked_up = store.looked_up, []
    missing_path = path.replace("s1", "s9").replace("e1", "e9").replace("e2", "e9")
    missing = await get(app, missing_path, who)
    assert foreign.status_code == missing.status_code == 404
    same = missing.text.replace("s9", "s1").replace("e9", "e2" if "e2" in path else "e1")
    assert foreign.text == same
    assert foreign.headers == missing.headers
    assert foreign_look_ups == store.looked_up


async def test_a_snapshot_of_another_execution_does_not_exist() -> None:
    answer = await get(make_app(rows()), "/executions/e1/snapshots/n2", "ada")
    assert (answer.status_code, answer.json()["code"]) == (404, "snapshot_not_found")


async def test_an_execution_whose_session_is_gone_is_nobodys() -> None:
    for who in PEOPLE:
        assert (await get(make_app(rows()), "/executions/e3", who)).status_code == 404


async def test_an_administrators_route_is_forbidden_to_others() -> None:
    app = make_app(rows())
    codes = [(await get(app, "/all", who)).status_code for who in ("ada", "root", "root2")]
    assert codes == [403, 200, 403]


async def test_a_route_can_ask_the_applications_rule_about_more_than_its_own_action() -> None:
    asked: list[Any] = []

    def rule(who: Principal, action: str, about: Any) -> bool:
        asked.append((who.user_id, action, about and about.id))
        return action == "allowed"

    found, run = services(rows(), rule), rows().execution_rows["e1"]
    await require(found, PEOPLE["ada"], "allowed", run)
    with pytest.raises(NotAllowedError):
        await require(found, PEOPLE["ada"], "denied")
    assert asked == [("ada", "allowed", "e1"), ("ada", "denied", None)]
    await require(services(rows()), PEOPLE["ada"], "denied", run)


@pytest.mark.parametrize("path", ["/sessions/", "/executions/", "/keys/"])
async def test_an_id_is_not_repeated_at_full_length(path: str) -> None:
    answer = await get(make_app(rows()), path + "x" * 5000, "ada")
    assert answer.status_code == 404
    assert len(answer.text) < 400


async def test_a_key_is_its_owners_and_the_administrators() -> None:
    store = rows()
    key, _ = await KeyRing(store, CLOCK).create(PEOPLE["ada"], "k")  # pyright: ignore[reportArgumentType]
    app = make_app(store)
    codes = {who: (await get(app, f"/keys/{key.id}", who)).status_code for who in PEOPLE}
    assert codes == {"ada": 200, "bob": 404, "root": 200, "ada2": 404, "root2": 404}


@pytest.mark.parametrize("id", ["%00", "a%00b", "x" * 5000, "%F0%9F%98%80", "s1%20", "..%2Fs1"])
async def test_an_id_that_none_can_be_is_missing(id: str) -> None:
    answer = await get(make_app(rows()), f"/sessions/{id}", "ada")
    assert answer.status_code == 404


@pytest.mark.parametrize("id", ["%00", "e1%00", "e1%0A", "x" * 65, "%F0%9F%98%80", "%ED%A0%80"])
@pytest.mark.parametrize("path", ["/sessions/", "/executions/", "/executions/e1/snapshots/"])
async def test_b114_an_id_that_none_can_be_reaches_no_query(path: str, id: str) -> None:
    store = rows()
    answer = await get(make_app(store), path + id, "ada")

    assert answer.status_code == 404
    assert unquote(id) not in store.asked_for
    assert all(len(it) < 65 and it.isascii() and it.isprintable() for it in store.asked_for)
    assert store.asked_for


async def test_the_applications_own_rule_is_asked_only_about_what_is_theirs() -> None:
    asked: list[tuple[str, str, Any]] = []

    def rule(principal: Principal, action: str, thing: Any) -> bool:
        asked.append((principal.user_id, action, getattr(thing, "id", None)))
        return action != "s"

    app = make_app(rows(), rule)
    denied = await get(app, "/sessions/s1", "ada")
    assert (denied.status_code, denied.json()["code"]) == (403, "not_allowed")
    assert (await get(app, "/sessions/s1", "bob")).status_code == 404
    assert (await get(app, "/executions/e1", "ada")).status_code == 200
    assert (await get(app, "/me", "bob")).status_code == 200
    assert asked == [("ada", "s", "s1"), ("ada", "e", "e1"), ("bob", "me", None)]


async def test_the_rule_may_be_async_may_raise_and_what_is_not_true_denies() -> None:
    async def slow(principal: Principal, action: str, thing: Any) -> bool:
        return principal.user_id == "ada"

    def raising(principal: Principal, action: str, thing: Any) -> bool:
        raise PermissionError("secret reason")

    def forgetful(principal: Principal, action: str, thing: Any) -> None:
        return None

    async def code(rule: Any, who: str) -> int:
        return (await get(make_app(rows(), rule), "/me", who)).status_code

    assert [await code(slow, "ada"), await code(slow, "bob")] == [200, 403]
    assert [await code(raising, "ada"), await code(forgetful, "ada")] == [403, 403]
    assert "secret reason" not in (await get(make_app(rows(), raising), "/me", "ada")).text


async def test_a_mounted_app_uses_its_own_services() -> None:
    outer = FastAPI()
    outer.mount("/agents", make_app(rows()))
    assert (await get(outer, "/agents/sessions/s1", "ada")).json() == {"session": "s1"}
    assert (await get(outer, "/agents/sessions/s1", "bob")).status_code == 404


@pytest.mark.parametrize(("who", "may"), [("ada", True), ("bob", False), ("root", True),
                                          ("ada2", False), ("root2", False)])  # fmt: skip
async def test_channels_follow_the_same_rule(who: str, may: bool) -> None:
    found, person = services(rows()), PEOPLE[who]
    assert await may_follow(found, person, "s1") is may
    assert not await may_follow(found, person, "s9")
    denying = services(rows(), lambda *_: False)
    assert not await may_follow(denying, person, "s1")


async def test_who_came_with_a_key_or_token_that_ran_out_may_follow_no_more() -> None:
    store = rows()
    found = services(store)
    key, text = await found.keys.create(PEOPLE["ada"], "k")
    who = await found.keys.verify(text)
    assert await may_follow(found, who, "s1")
    await found.keys.revoke(key.id, tenant_id="t1")
    assert not await may_follow(found, who, "s1")
    for ahead, may in ((60, True), (0, False)):
        claims = {"exp": NOW.timestamp() + ahead}
        assert await may_follow(found, replace(PEOPLE["ada"], claims=claims), "s1") is may


async def test_a_stream_is_not_opened_for_a_key_that_was_revoked_meanwhile() -> None:
    """As by a token for one stream, which outlives the key that it was made with."""
    store = rows()
    app = make_app(store)
    key, text = await app.state.services.keys.create(PEOPLE["ada"], "k")
    PEOPLE["token"] = await app.state.services.keys.verify(text)
    try:
        assert (await get(app, "/sessions/s1/events", "token")).status_code == 200
        await app.state.services.keys.revoke(key.id, tenant_id="t1")
        assert (await get(app, "/sessions/s1/events", "token")).status_code == 401
    finally:
        del PEOPLE["token"]


@pytest.mark.parametrize(
    "channel",
    ["agent.session.s1", "presence-agent.session.s1", "private-agent.session.", "private-", "",
     "private-agent.session.s1.x", "private-agent.session.s1\n", "Private-agent.session.s1",
     "private-agentXsession.s1", "private-agent.session." + "a" * 65, "private-encrypted-x"],
)  # fmt: skip
def test_b114_other_channels_can_not_be_joined(channel: str) -> None:
    assert channel_policy(channel) is None
