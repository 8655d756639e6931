"""Sessions by HTTP: made, listed, read, changed."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.server.serving import DATABASE, Served
from tests.integration.stores.databases import run_sql


async def made(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/agent/sessions", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_session_is_made_with_what_was_asked_for(served: Served) -> None:
    async with served.client() as ada:
        session = await made(
            ada,
            agent_type="thrifty",
            title="Letters",
            when_busy="reject",
            related_type="invoice",
            related_id="42",
            metadata={"project": "north"},
        )
        read = await ada.get(f"/agent/sessions/{session['id']}")

    assert read.json() == session
    assert session["user_id"] == "ada"
    assert session["agent_type"] == "thrifty"
    assert session["title"] == "Letters"
    assert session["status"] == "active"
    assert session["when_busy"] == "reject"
    assert session["related_id"] == "42"
    assert session["initial_context_url"] == "/invoices/42"
    assert session["metadata"] == {"project": "north"}
    assert session["created_at"].endswith("Z")


async def test_without_wishes_it_gets_the_first_agent(served: Served) -> None:
    async with served.client() as ada:
        session = await made(ada)

    assert session["agent_type"] == "helper"
    assert session["title"] is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"agent_type": "nobody"}, "agent_not_found"),
        ({"related_type": "planet", "related_id": "1"}, "unknown_related_type"),
        ({"related_type": "invoice", "related_id": "9"}, "context_refused"),
        ({"related_type": "invoice"}, "bad_context"),
        ({"context_url": "javascript:alert(1)"}, "bad_context_url"),
        ({"title": "a\0b"}, "invalid_request"),
        ({"metadata": {"event_type": "x"}}, "bad_metadata"),
        ({"unknown": 1}, "invalid_request"),
    ],
)
async def test_what_does_not_fit_makes_no_session(
    served: Served, body: dict[str, Any], code: str
) -> None:
    async with served.client() as ada:
        answer = await ada.post("/agent/sessions", json=body)
        listed = await ada.get("/agent/sessions")

    assert answer.status_code == 422
    assert answer.json()["code"] == code
    assert listed.json()["items"] == []


async def test_pages_of_sessions_join_without_gap_or_double(served: Served) -> None:
    async with served.client() as ada:
        ids = [(await made(ada, title=f"n{number}"))["id"] for number in range(7)]
        seen: list[str] = []
        cursor: str | None = None
        pages = 0
        while pages == 0 or cursor:
            query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
            page = (await ada.get("/agent/sessions", params=query)).json()
            seen += [item["id"] for item in page["items"]]
            cursor = page["next"]
            pages += 1

    assert seen == ids[::-1]
    assert pages == 3


async def test_b116_a_damaged_session_is_left_out_and_the_rest_is_listed(
    served: Served, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served.client() as ada:
        ids = [(await made(ada, title=f"n{number}"))["id"] for number in range(4)]
        run_sql(
            f"sqlite:///{folder / DATABASE}",
            f"UPDATE agent_sessions SET status = 'ajar' WHERE id = '{ids[2]}'",
        )
        first = (await ada.get("/agent/sessions", params={"limit": 2})).json()
        second = await ada.get("/agent/sessions", params={"limit": 2, "cursor": first["next"]})

    assert [item["id"] for item in first["items"]] == [ids[3], ids[1]]
    assert [item["id"] for item in second.json()["items"]] == [ids[0]]
    assert (
        f"left out of a list: a row of agent_sessions (id '{ids[2]}') does not fit" in caplog.text
    )


async def test_sessions_are_found_by_status_agent_and_words(served: Served) -> None:
    async with served.client() as ada:
        letters = await made(ada, title="Dunning letters")
        thrifty = await made(ada, title="Budget", agent_type="thrifty")
        await ada.patch(f"/agent/sessions/{letters['id']}", json={"status": "archived"})

        async def found(**query: str) -> list[str]:
            answer = await ada.get("/agent/sessions", params=query)
            return [item["id"] for item in answer.json()["items"]]

        assert await found(status="archived") == [letters["id"]]
        assert await found(status="active") == [thrifty["id"]]
        assert await found(agent_type="thrifty") == [thrifty["id"]]
        assert await found(search="dunning") == [letters["id"]]
        assert await found(search="nothing like it") == []


async def test_users_see_their_own_and_administrators_their_tenant(served: Served) -> None:
    async with (
        served.client("ada") as ada,
        served.client("bob") as bob,
        served.client("root", admin=True) as root,
        served.client("root", admin=True, tenant="other") as stranger,
    ):
        hers = (await made(ada))["id"]
        his = (await made(bob))["id"]

        async def listed(client: httpx2.AsyncClient, **query: str) -> set[str]:
            answer = await client.get("/agent/sessions", params=query)
            return {item["id"] for item in answer.json()["items"]}

        assert await listed(ada) == {hers}
        assert await listed(ada, user_id="ada") == {hers}
        assert await listed(root) == {hers, his}
        assert await listed(root, user_id="bob") == {his}
        assert await listed(stranger) == set()
        foreign = await ada.get("/agent/sessions", params={"user_id": "bob"})
        assert (foreign.status_code, foreign.json()["code"]) == (403, "not_allowed")


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "201"},
        {"limit": "x"},
        {"cursor": "nonsense"},
        {"cursor": ""},
        {"status": "gone"},
        {"search": "a\0"},
        {"unknown": "1"},
    ],
)
async def test_a_list_that_cannot_be_is_refused(served: Served, query: dict[str, str]) -> None:
    async with served.client() as ada:
        answer = await ada.get("/agent/sessions", params=query)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


async def test_only_what_is_named_changes(served: Served) -> None:
    async with served.client() as ada:
        session = await made(ada, title="Old", metadata={"a": 1})
        url = f"/agent/sessions/{session['id']}"

        renamed = (await ada.patch(url, json={"title": "New"})).json()
        assert (renamed["title"], renamed["metadata"]) == ("New", {"a": 1})
        unnamed = (await ada.patch(url, json={"title": None})).json()
        assert unnamed["title"] is None
        steered = (await ada.patch(url, json={"when_busy": "steer"})).json()
        assert (steered["when_busy"], steered["status"]) == ("steer", "active")
        noted = (await ada.patch(url, json={"metadata": {"b": 2}})).json()
        assert noted["metadata"] == {"b": 2}
        same = (await ada.patch(url, json={})).json()
        assert (same["when_busy"], same["metadata"]) == ("steer", {"b": 2})


async def test_a_closed_session_stays_closed_and_takes_no_message(served: Served) -> None:
    async with served.client() as ada:
        url = f"/agent/sessions/{(await made(ada))['id']}"
        closed = await ada.patch(url, json={"status": "closed"})
        assert closed.json()["status"] == "closed"

        sent = await ada.post(f"{url}/messages", json={"content": "hi"})
        opened = await ada.patch(url, json={"status": "active"})

    assert (sent.status_code, opened.status_code) == (409, 409)
    assert sent.headers["content-type"] == "application/problem+json"


async def test_a_foreign_session_and_a_missing_one_are_answered_alike(served: Served) -> None:
    async with served.client("ada") as ada, served.client("bob") as bob:
        hers = (await made(ada))["id"]
        foreign = await bob.get(f"/agent/sessions/{hers}")
        missing = await bob.get("/agent/sessions/0198c5a2-7b1e-7c3a-9d40-1f2e3d4c5b6a")

    assert foreign.status_code == missing.status_code == 404
    assert foreign.json()["code"] == missing.json()["code"] == "session_not_found"


@pytest.mark.parametrize("id", ["%00", "a%2Fb", "%F0%9F%98%80", "x" * 500, "..%2f..", "'; --"])
async def test_b114_what_can_be_no_id_is_simply_not_there(served: Served, id: str) -> None:
    async with served.client() as ada:
        answer = await ada.get(f"/agent/sessions/{id}")

    assert answer.status_code == 404
