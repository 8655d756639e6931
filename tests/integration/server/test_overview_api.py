"""All executions of a user or a tenant: the inbox of what waits, and where sessions stand."""

from typing import Any

import httpx2
import pytest

from stepwell.server.routes.shapes import ExecutionPage, SessionPage
from tests.answers import asked_by
from tests.integration.server.serving import Served


async def ran(served: Served, client: httpx2.AsyncClient, content: str, **session: Any) -> str:
    """The id of an execution that ran as far as it goes."""
    answer = await client.post("/agent/messages", json={"content": content, "session": session})
    assert answer.status_code == 202, answer.text
    await served.work_off()
    return answer.json()["execution"]["id"]


async def listed(client: httpx2.AsyncClient, **params: Any) -> list[str]:
    answer = await client.get("/agent/executions", params=params)
    assert answer.status_code == 200, answer.text
    ExecutionPage.model_validate(answer.json())
    return [item["id"] for item in answer.json()["items"]]


async def test_executions_of_all_sessions_are_paged_newest_first(served: Served) -> None:
    async with served.client() as ada:
        ids = [await ran(served, ada, f"number {n}") for n in range(5)]
        found: list[str] = []
        params: dict[str, Any] = {"limit": 2}
        while True:
            page = (await ada.get("/agent/executions", params=params)).json()
            found += [item["id"] for item in page["items"]]
            if page["next"] is None:
                break
            params["cursor"] = page["next"]

    assert found == ids[::-1]


async def test_what_waits_for_a_person_is_listed_alone(served: Served) -> None:
    async with served.client() as ada:
        done = await ran(served, ada, "add")
        asks = await ran(served, ada, "ask")
        needs_budget = await ran(served, ada, "add", agent_type="thrifty")

        assert await listed(ada, waiting="true") == [needs_budget, asks]
        assert await listed(ada, waiting="true", agent_type="helper") == [asks]
        assert await listed(ada, waiting="true", status="paused") == [needs_budget, asks]
        assert await listed(ada, status="completed") == [done]
        assert await listed(ada, agent_type="thrifty") == [needs_budget]
        assert await listed(ada, waiting="false") == [needs_budget, asks, done]
        url = f"/agent/executions/{asks}"
        await ada.post(
            f"{url}/answer", json={"question_id": await asked_by(ada, url), "answer": "Ulm"}
        )
        assert await listed(ada, waiting="true") == [needs_budget]
        assert await listed(ada, status="pending") == [asks]


async def test_everybody_sees_their_own_and_administrators_the_tenants(served: Served) -> None:
    async with (
        served.client("ada") as ada,
        served.client("bob") as bob,
        served.client("root", admin=True) as root,
        served.client("root", tenant="other", admin=True) as stranger,
        served.client(None) as nobody,
    ):
        hers, his = await ran(served, ada, "ask"), await ran(served, bob, "ask")

        assert await listed(ada) == await listed(ada, user_id="ada") == [hers]
        assert await listed(bob, waiting="true") == [his]
        assert await listed(root) == [his, hers]
        assert await listed(root, user_id="ada", waiting="true") == [hers]
        assert await listed(stranger) == []
        assert (await ada.get("/agent/executions", params={"user_id": "bob"})).status_code == 403
        assert (await nobody.get("/agent/executions")).status_code == 401


async def test_a_former_administrator_sees_nothing_of_others(served: Served) -> None:
    async with (
        served.client("ada") as ada,
        served.client("eve", admin=True) as administrator,
        served.client("eve") as former,
    ):
        sent = await ada.post("/agent/messages", json={"content": "mine"})
        session = sent.json()["session"]["id"]
        await served.work_off()
        path = f"/agent/sessions/{session}/messages"
        added = await administrator.post(path, json={"content": "ask"})
        await served.work_off()
        execution = added.json()["execution"]["id"]

        assert execution in await listed(administrator)
        assert execution in await listed(ada)
        assert await listed(ada, waiting="true") == [execution]
        assert await listed(former) == await listed(former, waiting="true") == []
        assert (await former.get(f"/agent/executions/{execution}")).status_code == 404


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"waiting": "true", "status": "completed"}, "two_states"),
        ({"status": "asleep"}, "invalid_request"),
        ({"waiting": "perhaps"}, "invalid_request"),
        ({"cursor": "nonsense"}, "bad_cursor"),
        ({"limit": "0"}, "invalid_request"),
        ({"colour": "red"}, "invalid_request"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    served: Served, params: dict[str, str], code: str
) -> None:
    async with served.client() as ada:
        answer = await ada.get("/agent/executions", params=params)

    assert (answer.status_code, answer.json()["code"]) == (422, code)


async def test_a_list_of_sessions_says_where_each_stands(served: Served) -> None:
    async with served.client() as ada:
        await ran(served, ada, "add", title="done")
        await ran(served, ada, "ask", title="waits")
        await ada.post("/agent/sessions", json={"title": "empty"})
        page = (await ada.get("/agent/sessions")).json()
        SessionPage.model_validate(page)
        waits = next(item for item in page["items"] if item["title"] == "waits")
        # A second message queues behind the first, which still is what it stands at.
        await ada.post(f"/agent/sessions/{waits['id']}/messages", json={"content": "and now"})
        again = (await ada.get("/agent/sessions")).json()

    stands = {item["title"]: item["last_execution_status"] for item in page["items"]}
    assert stands == {"done": "completed", "waits": "paused", "empty": None}
    assert {it["title"]: it["last_execution_status"] for it in again["items"]} == stands
