"""Who opens a session gets its messages, and from where on to follow its events: nothing is lost
and nothing comes twice, whatever runs meanwhile."""

from pathlib import Path
from typing import Any

import httpx2
from msgspec.structs import replace

from stepwell.server.routes.shapes import MessagePage
from stepwell.sessions.occurrence import envelope_of
from stepwell.sessions.ports import Transaction
from tests.answers import asked_by
from tests.integration.server.serving import Served, serving


async def sent(client: httpx2.AsyncClient, content: str, **session: Any) -> dict[str, Any]:
    answer = await client.post("/agent/messages", json={"content": content, "session": session})
    assert answer.status_code == 202, answer.text
    return answer.json()


async def opened(client: httpx2.AsyncClient, session_id: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(f"/agent/sessions/{session_id}/messages", params=params)
    page = answer.json()
    MessagePage.model_validate(page)
    return page


async def log_of(served: Served, session_id: str, after: int = 0) -> list[dict[str, Any]]:
    events = await served.store.read(lambda tx: tx.entries_after(session_id, after, limit=10_000))
    return [envelope_of(event) for event in events]


async def test_a_session_at_rest_is_settled_to_its_end(served: Served) -> None:
    async with served.client() as ada:
        session_id = (await sent(ada, "add"))["session"]["id"]
        await served.work_off()
        page = await opened(ada, session_id)
        session = (await ada.get(f"/agent/sessions/{session_id}")).json()

    assert page["unfinished"] == []
    assert page["settled_seq"] == session["last_seq"] > 5


async def test_every_event_of_what_is_not_over_comes_behind_the_settled_ones(
    served: Served,
) -> None:
    async with served.client() as ada:
        first = await sent(ada, "add")
        session_id = first["session"]["id"]
        await served.work_off()
        url = f"/agent/sessions/{session_id}/messages"
        asks = (await ada.post(url, json={"content": "ask"})).json()
        await served.work_off()
        waits = (await ada.post(url, json={"content": "later"})).json()
        page = await opened(ada, session_id)
        events = await log_of(served, session_id)

    ids = [asks["execution"]["id"], waits["execution"]["id"]]
    assert [each["id"] for each in page["unfinished"]] == ids
    assert [each["status"] for each in page["unfinished"]] == ["paused", "pending"]
    firsts = {id: min(it["seq"] for it in events if it["execution_id"] == id) for id in ids}
    assert {each["id"]: each["metadata"]["first_seq"] for each in page["unfinished"]} == firsts
    assert page["settled_seq"] == firsts[ids[0]] - 1
    behind = [it for it in events if it["seq"] > page["settled_seq"]]
    assert behind[0]["type"] == "message.sent"
    assert behind[0]["payload"]["message_id"] == asks["message"]["id"]
    assert {it["execution_id"] for it in behind} == set(ids)


async def test_answering_and_resuming_keep_where_it_began(served: Served) -> None:
    async with served.client() as ada:
        asks = await sent(ada, "ask")
        session_id, url = asks["session"]["id"], f"/agent/executions/{asks['execution']['id']}"
        await served.work_off()
        await ada.post(
            f"{url}/answer", json={"question_id": await asked_by(ada, url), "answer": "Ulm"}
        )
        answered = await opened(ada, session_id)
        assert [each["status"] for each in answered["unfinished"]] == ["pending"]
        assert answered["settled_seq"] == 0
        await served.work_off()
        assert (await opened(ada, session_id))["unfinished"] == []

        thrifty = await sent(ada, "add", agent_type="thrifty")
        session_id, url = (
            thrifty["session"]["id"],
            f"/agent/executions/{thrifty['execution']['id']}",
        )
        await served.work_off()
        await ada.post(f"{url}/resume", json={"question_id": await asked_by(ada, url), "steps": 5})
        assert (await opened(ada, session_id))["settled_seq"] == 0
        await served.work_off()
        done = (await ada.get(url)).json()

    assert (done["status"], done["metadata"]["first_seq"]) == ("completed", 1)


async def test_a_fork_begins_at_its_own_first_event(served: Served) -> None:
    async with served.client() as ada:
        first = await sent(ada, "add")
        await served.work_off()
        answer = await ada.post(
            f"/agent/executions/{first['execution']['id']}/fork", json={"message": "again"}
        )
        fork = answer.json()
        page = await opened(ada, fork["session"]["id"])
        events = await log_of(served, fork["session"]["id"])

    assert fork["execution"]["metadata"]["first_seq"] == 1
    assert page["settled_seq"] == 0
    assert [each["id"] for each in page["unfinished"]] == [fork["execution"]["id"]]
    assert {it["execution_id"] for it in events} == {fork["execution"]["id"]}


async def test_an_interrupted_execution_is_settled_and_the_new_one_is_not(served: Served) -> None:
    async with served.client() as ada:
        first = await sent(ada, "one", when_busy="interrupt")
        session_id = first["session"]["id"]
        second = await ada.post(f"/agent/sessions/{session_id}/messages", json={"content": "two"})
        page = await opened(ada, session_id)
        events = await log_of(served, session_id)

    own = [it["seq"] for it in events if it["execution_id"] == second.json()["execution"]["id"]]
    assert page["settled_seq"] == min(own) - 1 > 0
    assert len(page["unfinished"]) == 1


async def test_every_page_says_it(served: Served) -> None:
    async with served.client() as ada:
        session_id = (await sent(ada, "ask"))["session"]["id"]
        await served.work_off()
        newest = await opened(ada, session_id, limit=2)
        older = await opened(ada, session_id, limit=2, before=newest["older"])
        newer = await opened(ada, session_id, limit=2, after=older["newer"])

    for page in (newest, older, newer):
        assert page["settled_seq"] == 0
        assert len(page["unfinished"]) == 1


async def test_an_execution_of_an_older_version_is_followed_from_the_beginning(
    folder: Path,
) -> None:
    async with serving(folder) as served, served.client() as ada:
        first = await sent(ada, "add")
        session_id = first["session"]["id"]
        await served.work_off()
        second = await ada.post(f"/agent/sessions/{session_id}/messages", json={"content": "two"})
        execution_id = second.json()["execution"]["id"]

        async def forget(tx: Transaction) -> None:
            row = await tx.execution(execution_id, lock=True)
            assert row is not None
            await tx.save_execution(replace(row, metadata={}))

        assert (await opened(ada, session_id))["settled_seq"] > 0
        await served.store.write(forget, name="test")
        assert (await opened(ada, session_id))["settled_seq"] == 0


async def test_it_says_up_to_where_the_log_went_when_the_messages_were_read(
    served: Served,
) -> None:
    """What was queued while another ran: events of the finished one lie behind the settled ones,
    and a page tells by ``last_seq`` that stored messages tell of them already."""
    async with served.client() as ada:
        first = await sent(ada, "ask")
        session_id = first["session"]["id"]
        await served.work_off()
        url = f"/agent/sessions/{session_id}/messages"
        queued = (await ada.post(url, json={"content": "later"})).json()
        over = first["execution"]["id"]
        await ada.post(f"/agent/executions/{over}/cancel", json={})
        page = await opened(ada, session_id)
        events = await log_of(served, session_id)

    assert [each["id"] for each in page["unfinished"]] == [queued["execution"]["id"]]
    assert page["last_seq"] == events[-1]["seq"] > page["settled_seq"]
    told_twice = [it for it in events if it["seq"] > page["settled_seq"]]
    assert over in {it["execution_id"] for it in told_twice}
    stored = {each["agent_execution_id"] for each in page["items"]}
    assert over in stored


async def test_executions_that_the_application_refuses_are_left_out(folder: Path) -> None:
    asked: list[tuple[str, str]] = []

    def authorize(_who: Any, action: str, thing: Any) -> bool:
        asked.append((action, getattr(thing, "id", "")))
        return action != "executions.read" or thing.status != "paused"

    async with serving(folder, authorize=authorize) as served, served.client() as ada:
        first = await sent(ada, "ask")
        session_id, secret_id = first["session"]["id"], first["execution"]["id"]
        await served.work_off()
        url = f"/agent/sessions/{session_id}/messages"
        open_id = (await ada.post(url, json={"content": "later"})).json()["execution"]["id"]
        assert (await ada.get(f"/agent/executions/{secret_id}")).status_code == 403
        asked.clear()
        page = await opened(ada, session_id)

    assert [each["id"] for each in page["unfinished"]] == [open_id]
    assert page["settled_seq"] == 0
    assert asked == [
        ("messages.list", session_id),
        ("executions.read", secret_id),
        ("executions.read", open_id),
    ]
