"""Executions by HTTP: read, cancelled, answered, resumed, forked, explained."""

from typing import Any

import httpx2
import pytest

from stepwell.server.routes.shapes import (
    AgentList,
    ExecutionPage,
    ExecutionShape,
    SentShape,
    SnapshotPage,
    StepPage,
    WholeSnapshotShape,
)
from stepwell.sessions.retention import Retention, RetentionPolicy
from tests.integration.server.serving import Served

MISSING = "0198c5a2-7b1e-7c3a-9d40-1f2e3d4c5b6a"


async def ran(served: Served, client: httpx2.AsyncClient, content: str, **session: Any) -> str:
    """The id of an execution that ran as far as it goes."""
    answer = await client.post("/agent/messages", json={"content": content, "session": session})
    assert answer.status_code == 202, answer.text
    await served.work_off()
    return f"/agent/executions/{answer.json()['execution']['id']}"


async def test_an_execution_says_how_it_ended_and_why(served: Served) -> None:
    async with served.client() as ada:
        url = await ran(served, ada, "add")
        answer = await ada.get(url)

    execution = answer.json()
    ExecutionShape.model_validate(execution)
    assert execution["status"] == "completed"
    assert execution["step_count"] == 2
    assert execution["token_usage"] == 30
    assert execution["stop_reason"] in ("completed", "finish_reason")
    assert execution["decision"] is not None
    assert execution["completed_at"] > execution["started_at"]
    assert "test-worker" not in answer.text


async def test_the_executions_of_a_session_are_paged_oldest_first(served: Served) -> None:
    async with served.client() as ada:
        first = await ada.post("/agent/messages", json={"content": "one"})
        session = f"/agent/sessions/{first.json()['session']['id']}"
        ids = [first.json()["execution"]["id"]]
        for text in ("two", "three"):
            sent = await ada.post(f"{session}/messages", json={"content": text})
            ids.append(sent.json()["execution"]["id"])
        page = (await ada.get(f"{session}/executions", params={"limit": 2})).json()
        rest = await ada.get(f"{session}/executions", params={"limit": 2, "cursor": page["next"]})

    ExecutionPage.model_validate(page)
    assert [item["id"] for item in page["items"]] == ids[:2]
    assert [item["id"] for item in rest.json()["items"]] == ids[2:]
    assert rest.json()["next"] is None


async def test_steps_trace_and_snapshots_show_what_happened(served: Served) -> None:
    async with served.client() as ada:
        url = await ran(served, ada, "add")
        steps = (await ada.get(f"{url}/steps")).json()
        trace_answer = await ada.get(f"{url}/trace")
        snapshots = (await ada.get(f"{url}/snapshots")).json()
        last = snapshots["items"][-1]
        whole = (await ada.get(f"{url}/snapshots/{last['id']}")).json()

    StepPage.model_validate(steps)
    assert len(steps["items"]) == 2
    trace = trace_answer.json()
    assert trace["explanation"]
    assert trace["execution"]["status"] == "completed"
    assert [step["number"] for step in trace["steps"]] == [1, 2]
    for hidden in ("test-worker", "tenant_id"):
        assert hidden not in trace_answer.text
    SnapshotPage.model_validate(snapshots)
    assert last["is_final"] is True
    WholeSnapshotShape.model_validate(whole)
    assert whole["state"]
    assert "You said" not in str(snapshots)


async def test_a_snapshot_is_found_under_its_own_execution_only(served: Served) -> None:
    async with served.client("ada") as ada, served.client("bob") as bob:
        hers = await ran(served, ada, "hello")
        his = await ran(served, bob, "hello")
        (snapshot, *_) = (await ada.get(f"{hers}/snapshots")).json()["items"]
        stolen = await bob.get(f"{his}/snapshots/{snapshot['id']}")
        missing = await bob.get(f"{his}/snapshots/{MISSING}")

    assert (stolen.status_code, missing.status_code) == (404, 404)
    assert stolen.json()["code"] == missing.json()["code"]


async def test_a_waiting_execution_is_cancelled(served: Served) -> None:
    async with served.client() as ada:
        sent = await ada.post("/agent/messages", json={"content": "hello"})
        url = f"/agent/executions/{sent.json()['execution']['id']}"
        cancelled = await ada.post(f"{url}/cancel", json={"reason": "changed my mind"})
        again = await ada.post(f"{url}/cancel")

    assert cancelled.status_code == 202
    assert cancelled.json()["status"] == "cancelled"
    assert again.json()["status"] == "cancelled"


async def test_what_is_over_cannot_be_cancelled(served: Served) -> None:
    async with served.client() as ada:
        url = await ran(served, ada, "hello")
        answer = await ada.post(f"{url}/cancel")

    assert (answer.status_code, answer.json()["code"]) == (409, "already_over")


async def test_a_question_is_answered_and_the_execution_goes_on(served: Served) -> None:
    async with served.client() as ada:
        url = await ran(served, ada, "ask")
        paused = (await ada.get(url)).json()
        assert paused["status"] == "paused"
        assert paused["pending"][0]["prompt"] == "Which city?"
        [asked] = paused["pending"]
        call_id, question_id = asked["call_id"], asked["question_id"]

        for named in (
            {"question_id": "nope"},
            {"question_id": call_id},
            {"call_id": call_id},
            {"question_id": question_id, "call_id": "other"},
            {},
        ):
            wrong = await ada.post(f"{url}/answer", json={**named, "answer": "x"})
            assert (wrong.status_code, wrong.json()["code"]) == (409, "question_changed")
            assert wrong.headers["content-type"] == "application/problem+json"
            assert wrong.json()["pending"] == paused["pending"]
        assert (await ada.get(url)).json() == paused
        answered = await ada.post(
            f"{url}/answer", json={"question_id": question_id, "answer": "Oslo"}
        )
        assert answered.status_code == 202
        await served.work_off()
        done = (await ada.get(url)).json()
        again = await ada.post(f"{url}/answer", json={"question_id": question_id, "answer": "Rome"})

    assert done["status"] == "completed"
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")
    assert again.json()["pending"] == []


async def test_more_budget_lets_an_execution_go_on(served: Served) -> None:
    async with served.client() as ada:
        url = await ran(served, ada, "add", agent_type="thrifty")
        assert (await ada.get(url)).json()["status"] == "paused"

        nothing = await ada.post(f"{url}/resume")
        [asked] = (await ada.get(url)).json()["pending"]
        for named in ({}, {"question_id": "q_0"}):
            unseen = await ada.post(f"{url}/resume", json={**named, "steps": 5})
            assert (unseen.status_code, unseen.json()["code"]) == (409, "question_changed")
            assert unseen.json()["pending"] == [asked]
        grant = {"question_id": asked["question_id"], "steps": 5}
        granted = await ada.post(f"{url}/resume", json=grant)
        assert granted.status_code == 202, granted.text
        await served.work_off()
        done = (await ada.get(url)).json()
        over = await ada.post(f"{url}/resume", json=grant)

    assert nothing.status_code in (409, 422)
    assert (done["status"], done["step_count"]) == ("completed", 2)
    assert over.status_code == 409


async def test_an_execution_is_forked_into_a_session_of_its_own(served: Served) -> None:
    async with served.client() as ada:
        url = await ran(served, ada, "add")
        forked = await ada.post(f"{url}/fork", json={"message": "and now?"})
        assert forked.status_code == 202, forked.text
        SentShape.model_validate(forked.json())
        await served.work_off()
        copy = (await ada.get(f"/agent/executions/{forked.json()['execution']['id']}")).json()
        silent = await ada.post(f"{url}/fork")
        unknown = await ada.post(f"{url}/fork", json={"step_number": 99, "message": "x"})

    assert copy["status"] == "completed"
    assert copy["session_id"] == forked.json()["session"]["id"]
    assert silent.status_code in (409, 422)
    assert unknown.status_code == 422


async def test_a_fork_from_the_middle_goes_on_by_itself(served: Served) -> None:
    async with served.client() as ada:
        url = await ran(served, ada, "add")
        forked = await ada.post(f"{url}/fork", json={"step_number": 1})
        assert forked.status_code == 202, forked.text
        await served.work_off()
        copy = (await ada.get(f"/agent/executions/{forked.json()['execution']['id']}")).json()

    assert copy["status"] == "completed"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("POST", "/cancel", {}),
        ("POST", "/resume", {}),
        ("POST", "/answer", {"question_id": "q", "answer": 1}),
        ("POST", "/fork", {}),
        ("GET", "/steps", None),
        ("GET", "/trace", None),
        ("GET", "/snapshots", None),
        ("GET", f"/snapshots/{MISSING}", None),
    ],
)
async def test_foreign_and_missing_executions_are_answered_alike(
    served: Served, method: str, path: str, body: Any
) -> None:
    async with served.client("ada") as ada, served.client("bob") as bob:
        hers = await ran(served, ada, "hello")
        foreign = await bob.request(method, hers + path, json=body)
        missing = await bob.request(method, f"/agent/executions/{MISSING}{path}", json=body)

    assert foreign.status_code == missing.status_code == 404
    assert foreign.json()["code"] == missing.json()["code"] == "execution_not_found"


async def test_the_agents_are_listed_with_their_tools(served: Served) -> None:
    async with served.client() as ada:
        answer = await ada.get("/agent/agents")

    AgentList.model_validate(answer.json())
    assert answer.json()["default"] == "helper"
    tools = {item["name"]: item["tools"] for item in answer.json()["items"]}
    assert tools == {"helper": ["add", "user_input"], "thrifty": ["add"]}
    told = [(it["model"], it["examples"], it["is_default"]) for it in answer.json()["items"]]
    assert told == [("scripted", [], True), ("scripted", [], False)]


async def test_a_state_that_retention_removed_is_told_as_such(served: Served) -> None:
    async with served.client() as ada:
        old = await ran(served, ada, "add")
        session = (await ada.get(old)).json()["session_id"]
        snapshot = (await ada.get(f"{old}/snapshots")).json()["items"][-1]["id"]
        await ada.post(f"/agent/sessions/{session}/messages", json={"content": "add"})
        await served.work_off()
        store = served.services.store
        await Retention(store, RetentionPolicy(keep_executions=1)).run()
        answers = [await ada.get(f"{old}/{path}") for path in (f"snapshots/{snapshot}", "steps")]
        trace = await ada.get(f"{old}/trace")
    assert [(a.status_code, a.json()["code"]) for a in answers] == [(404, "states_removed")] * 2
    assert trace.status_code == 200
