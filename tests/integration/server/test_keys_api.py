"""API keys and channel signatures by HTTP."""

from pathlib import Path

import httpx2
import pytest

from stepwell.agent import Agent
from stepwell.app import AgentApp
from stepwell.server.live.channel_auth import sign
from stepwell.server.routes.shapes import ChannelShape, KeyList, NewKeyShape
from stepwell.server.settings import ServerSettings
from stepwell.testing import ScriptedModel
from tests.integration.server.serving import APP_SECRET, Served, UserHeaders, serving


async def test_a_key_is_shown_once_and_signs_in(served: Served) -> None:
    async with served.client("ada") as ada:
        made = await ada.post("/agent/keys", json={"name": "ci", "expires_in_days": 1})
        listed = await ada.get("/agent/keys")

    assert made.status_code == 201
    NewKeyShape.model_validate(made.json())
    KeyList.model_validate(listed.json())
    secret = made.json()["secret"]
    assert secret not in listed.text
    assert "secret" not in listed.text
    assert made.headers["cache-control"] == "no-store"
    async with served.client(None, headers={"Authorization": f"Bearer {secret}"}) as program:
        session = await program.post("/agent/sessions", json={})
    assert session.json()["user_id"] == "ada"


async def test_a_revoked_key_signs_in_no_more(served: Served) -> None:
    async with served.client("ada") as ada:
        made = (await ada.post("/agent/keys", json={"name": "ci"})).json()
        revoked = await ada.delete(f"/agent/keys/{made['id']}")
        again = await ada.delete(f"/agent/keys/{made['id']}")

    assert (revoked.status_code, again.status_code) == (200, 200)
    assert revoked.json()["revoked_at"] == again.json()["revoked_at"] is not None
    async with served.client(None, headers={"X-Api-Key": made["secret"]}) as program:
        answer = await program.get("/agent/sessions")
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_key_makes_no_key_and_revoking_counts_as_sending(folder: Path) -> None:
    settings = ServerSettings(sends_per_second=0.001, send_burst=3)
    async with serving(folder, server=settings) as served, served.client("ada") as ada:
        made = (await ada.post("/agent/keys", json={"name": "ci"})).json()
        async with served.client(None, headers={"X-Api-Key": made["secret"]}) as program:
            refused = await program.post("/agent/keys", json={"name": "for ever"})
        codes = [(await ada.delete(f"/agent/keys/{made['id']}")).status_code for _ in range(2)]

    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert "signed in with a key" in refused.json()["detail"]
    assert codes == [200, 429]


async def test_keys_are_ones_own_and_administrators_have_those_of_the_tenant(
    served: Served,
) -> None:
    async with (
        served.client("ada") as ada,
        served.client("bob") as bob,
        served.client("root", admin=True) as root,
    ):
        key = (await ada.post("/agent/keys", json={"name": "ci"})).json()["id"]
        for_bob = await root.post("/agent/keys", json={"name": "his", "user_id": "bob"})
        his = (await bob.get("/agent/keys")).json()["items"]
        everyones = (await root.get("/agent/keys")).json()["items"]
        foreign = await bob.delete(f"/agent/keys/{key}")
        missing = await bob.delete("/agent/keys/none")
        taken = await root.delete(f"/agent/keys/{key}")

    assert [item["id"] for item in his] == [for_bob.json()["id"]]
    assert {item["id"] for item in everyones} == {key, for_bob.json()["id"]}
    assert foreign.status_code == missing.status_code == 404
    assert foreign.json()["code"] == missing.json()["code"]
    assert taken.status_code == 200


@pytest.mark.parametrize("body", [{"is_admin": True}, {"user_id": "bob"}])
async def test_who_is_no_administrator_gives_no_more_than_they_have(
    served: Served, body: dict[str, object]
) -> None:
    async with served.client("ada") as ada:
        answer = await ada.post("/agent/keys", json={"name": "x", **body})
        listed = await ada.get("/agent/keys")

    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    assert listed.json()["items"] == []


@pytest.mark.parametrize(
    "body", [{}, {"name": ""}, {"name": "a\0"}, {"name": "n", "expires_in_days": -1}]
)
async def test_a_key_needs_a_name_and_a_future(served: Served, body: dict[str, object]) -> None:
    async with served.client("ada") as ada:
        answer = await ada.post("/agent/keys", json=body)

    assert answer.status_code == 422


@pytest.mark.parametrize("as_form", [True, False])
async def test_a_channel_is_signed_for_whom_it_belongs_to(served: Served, as_form: bool) -> None:
    path = "/broadcasting/auth"
    async with served.client("ada") as ada, served.client("bob") as bob:
        session = (await ada.post("/agent/sessions", json={})).json()
        body = {
            "socket_id": "12.34",
            "channel_name": f"private-agent.session.{session['id']}",
        }
        sent = {"data": body} if as_form else {"json": body}
        hers = await ada.post(path, **sent)  # type: ignore[arg-type]
        his = await bob.post(path, **sent)  # type: ignore[arg-type]

    assert hers.status_code == 200, hers.text
    ChannelShape.model_validate(hers.json())
    data = hers.json()["channel_data"]
    expected = sign(APP_SECRET, "12.34", body["channel_name"], data)
    assert hers.json()["auth"] == f"stepwell:{expected}"
    assert his.status_code == 404


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"socket_id=12.34", "application/x-www-form-urlencoded"),
        (b"socket_id=x&channel_name=c", "application/x-www-form-urlencoded"),
        (b"socket_id=1.2&channel_name=%FF", "application/x-www-form-urlencoded"),
        (b"&".join(b"a%d=1" % n for n in range(50)), "application/x-www-form-urlencoded"),
        (b'{"socket_id": 12, "channel_name": "c"}', "application/json"),
        (b"", "application/json"),
        (b"", "application/x-www-form-urlencoded"),
    ],
)
async def test_what_names_no_channel_is_refused(
    served: Served, content: bytes, media_type: str
) -> None:
    async with served.client("ada", headers={"Content-Type": media_type}) as ada:
        answer = await ada.post("/broadcasting/auth", content=content)

    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


class KeyedHeaders(UserHeaders):
    accepts_keys = True


@pytest.mark.parametrize(
    ("authenticate", "status"),
    [(UserHeaders(), 409), (UserHeaders().authenticate, 409), (None, 409), (KeyedHeaders(), 201)],
)
async def test_a_server_that_accepts_no_keys_makes_none(
    folder: Path, authenticate: object, status: int
) -> None:
    app = AgentApp(
        Agent(ScriptedModel([])),
        db=f"sqlite:///{folder}/keys.db",
        worker=False,
        authenticate=authenticate,  # type: ignore[arg-type]
    )
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.running(),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        made = await client.post("/agent/keys", json={"name": "ci"}, headers={"X-User": "ada"})
        listed = await app.services.keys.list_keys("default")
    assert made.status_code == status
    assert len(listed) == (status == 201)
    if status == 409:
        assert made.json()["code"] == "keys_not_accepted"
