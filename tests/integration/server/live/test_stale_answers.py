"""An answer holds for the question that the person saw, through every door of the server: sent
again, or for an earlier question of the same call, it changes nothing and returns what is asked."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import UseSubagents
from stepwell.models import ModelRequest
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import ScriptedModel, call
from stepwell.testing.scripted_model import Scripted
from stepwell.tools import tool
from tests.integration.server.live.living import Live, living

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
DELETED: list[str] = []
PATHS = ("harmless.txt", "/")
LONG = "call_" * 100


@tool
def delete(path: str) -> str:
    """Delete.

    Args:
        path: What.
    """
    DELETED.append(path)
    return f"deleted {path}"


def turn(request: ModelRequest) -> Scripted:
    """Deletes one thing after the other, in a subagent if it is told so, under one call id."""
    said, made = request.messages[0].text, sum(m.is_assistant() for m in request.messages)
    if said == "by a subagent" and made == 0:
        return call("spawn_subagent", id="s", subagent="cleaner", prompt="Clean up")
    if said == "by a subagent" or made == len(PATHS):
        return "Done."
    return call("delete", id=LONG, path=PATHS[made])


def cleaner() -> dict[str, Agent]:
    specs = AgentRegistry([AgentSpec(name="cleaner", description="Cleans.", system_prompt="Clean")])
    given = [UseSubagents(specs), UseApprovals("delete")]
    return {"main": Agent(ScriptedModel(turn), tools=[delete], capabilities=given)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    folder = tmp_path_factory.mktemp("stale")
    async with living(folder, made_agents=cleaner, ping_seconds=0.05) as made:
        yield made


async def paused(live: Live, text: str) -> Execution:
    DELETED.clear()
    session = await live.session()
    sent = await live.services.intake.send_message(
        Principal(user_id="ada"), NewMessage(content=text, session_id=session.id)
    )
    assert sent.execution is not None
    return await gone_on(live, sent.execution.id)


async def gone_on(live: Live, id: str) -> Execution:
    await live.served.work_off()
    found = await live.services.store.read(lambda tx: tx.execution(id))
    assert found is not None
    return found


async def post(live: Live, path: str, body: Json) -> tuple[int, Json]:
    """How it is answered; a stream is not waited for."""
    async with live.client() as client, client.stream("POST", path, json=body) as answer:
        if answer.headers["content-type"].startswith("text/event-stream"):
            return answer.status_code, {}
        await answer.aread()
        return answer.status_code, answer.json()


def by_http(run: Execution) -> tuple[str, Json]:
    asked = run.questions[0]
    body = {"question_id": asked["question_id"], "answer": {"approved": True}}
    return f"/agent/executions/{run.id}/answer", body


def by_ag_ui(run: Execution) -> tuple[str, Json]:
    named = run.questions[0]["question_id"]
    approved = {"interruptId": named, "status": "resolved", "payload": {"approved": True}}
    body = {"threadId": "t", "runId": "r", "messages": [], "resume": [approved]}
    return f"/agent/sessions/{run.session_id}/ag-ui", body


def by_ai_sdk(run: Execution) -> tuple[str, Json]:
    asked = run.questions[0]
    part = {
        "type": "dynamic-tool",
        "toolName": asked["tool_name"],
        "toolCallId": asked["call_id"],
        "state": "approval-responded",
        "input": {},
        "approval": {"id": asked["question_id"], "approved": True},
    }
    body = {"id": "chat", "messages": [{"id": "m", "role": "assistant", "parts": [part]}]}
    return f"/agent/sessions/{run.session_id}/ai-sdk", body


@pytest.mark.parametrize("text", ["by itself", "by a subagent"])
@pytest.mark.parametrize("door", [by_http, by_ag_ui, by_ai_sdk])
async def test_the_same_answer_sent_twice_approves_one_call(
    live: Live, door: Any, text: str
) -> None:
    first = await paused(live, text)
    path, body = door(first)
    assert (await post(live, path, body))[0] in (200, 202)
    second = await gone_on(live, first.id)
    assert DELETED == ["harmless.txt"]
    assert second.questions[0]["details"]["arguments"] == {"path": "/"}
    assert second.questions[0]["call_id"] == first.questions[0]["call_id"]

    status, problem = await post(live, path, body)

    assert (status, problem["code"]) == (409, "question_changed")
    assert problem["pending"] == [dict(asked) for asked in second.questions]
    assert await gone_on(live, first.id) == second
    assert DELETED == ["harmless.txt"]
    path, body = door(second)
    assert (await post(live, path, body))[0] in (200, 202)
    done = await gone_on(live, first.id)
    assert (done.status, DELETED) == ("completed", ["harmless.txt", "/"])
    status, problem = await post(live, path, body)
    assert (status, problem["code"], problem["pending"]) == (409, "not_waiting", [])


async def test_an_answer_for_another_execution_is_refused(live: Live) -> None:
    one, other = await paused(live, "by itself"), await paused(live, "by itself")
    _, body = by_http(one)
    path, _ = by_http(other)
    status, problem = await post(live, path, body)

    assert (status, problem["code"]) == (409, "question_changed")
    assert await gone_on(live, other.id) == other


async def test_a_long_call_id_can_be_named_beside_the_question(live: Live) -> None:
    run = await paused(live, "by itself")
    path, body = by_http(run)
    assert (await post(live, path, {**body, "call_id": LONG}))[0] == 202
