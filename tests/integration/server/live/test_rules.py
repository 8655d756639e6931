"""What the application's own rule forbids is forbidden through every protocol, and what is refused
leaves nothing behind."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.sessions.errors import TooManyError
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.ports import SessionFilter
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, Session
from stepwell.testing import ScriptedModel, call
from stepwell.tools import tool
from tests.integration.server.live.living import Live, living, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
FORBIDDEN: dict[str, set[str]] = {
    "clerk": {"executions.answer"},
    "guest": {"sessions.create"},
    "ada": set(),
}
PAID: list[int] = []
ASKED: list[tuple[str, str, type]] = []


@tool
def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: How much.
    """
    PAID.append(amount)
    return f"paid {amount}"


def payer() -> dict[str, Agent]:
    def turn(request: Any) -> Any:
        return "done" if request.messages[-1].is_tool() else call("pay", id="call_pay", amount=7)

    return {"payer": Agent(ScriptedModel(turn), tools=[pay], capabilities=[UseApprovals("pay")])}


def authorize(who: Principal, action: str, about: Session | Execution | None) -> bool:
    ASKED.append((who.user_id, action, type(about)))
    return action not in FORBIDDEN[who.user_id]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    folder = tmp_path_factory.mktemp("rules")
    made = living(
        folder,
        made_agents=payer,
        authorize=authorize,
        live_connections_per_user=1,
        ping_seconds=0.05,
    )
    async with made as live:
        yield live


async def paused(live: Live, user: str) -> Execution:
    """An execution of theirs that waits for an approval."""
    session = await live.session(user)
    sent = await live.services.intake.send_message(
        Principal(user_id=user), NewMessage(content="pay", session_id=session.id)
    )
    assert sent.execution is not None
    await live.served.work_off()
    return await row(live, sent.execution.id)


async def row(live: Live, execution_id: str) -> Execution:
    found = await live.services.store.read(lambda tx: tx.execution(execution_id))
    assert found is not None
    return found


async def post(client: httpx2.AsyncClient, path: str, body: Json) -> tuple[int, str]:
    """How it is answered; a stream is not waited for."""
    async with client.stream("POST", path, json=body) as answer:
        if answer.headers["content-type"].startswith("text/event-stream"):
            return answer.status_code, ""
        await answer.aread()
        return answer.status_code, answer.json().get("code", "")


def ag_ui(**body: Any) -> Json:
    return {"threadId": "t", "runId": "r", "messages": [], **body}


def said(text: str) -> Json:
    return {"id": "u1", "role": "user", "content": text}


def answers_of(run: Execution) -> dict[str, Json]:
    """What approves, denies or passes over the call, by the protocol that it is sent through."""
    named = run.pending[0]["question_id"]
    part = {
        "type": "dynamic-tool",
        "toolName": "pay",
        "toolCallId": "call_pay",
        "state": "approval-responded",
        "input": {"amount": 7},
        "approval": {"id": named, "approved": True},
    }
    approved = {"interruptId": named, "status": "resolved", "payload": {"approved": True}}
    cancelled = {"interruptId": named, "status": "cancelled"}
    text = {"type": "text", "text": "something else"}
    return {
        "ag-ui": ag_ui(resume=[approved]),
        "ag-ui ": ag_ui(resume=[cancelled]),
        "ag-ui  ": ag_ui(messages=[said("something else")]),
        "ai-sdk": {"messages": [{"id": "m", "role": "assistant", "parts": [part]}]},
        "ai-sdk ": {"messages": [{"id": "m", "role": "user", "parts": [text]}]},
    }


async def test_who_may_not_answer_may_not_by_any_protocol(live: Live) -> None:
    run = await paused(live, "clerk")
    before = await live.services.store.read(lambda tx: tx.messages(run.session_id or "", limit=99))
    async with live.client("clerk") as clerk:
        for way, body in answers_of(run).items():
            path = f"/agent/sessions/{run.session_id}/{way.strip()}"
            assert (way, await post(clerk, path, body)) == (way, (403, "not_allowed"))
        plain = {"question_id": run.pending[0]["question_id"], "answer": {"approved": True}}
        path = f"/agent/executions/{run.id}/answer"
        assert await post(clerk, path, plain) == (403, "not_allowed")
    await live.served.work_off()
    assert await row(live, run.id) == run
    after = await live.services.store.read(lambda tx: tx.messages(run.session_id or "", limit=99))
    assert after == before
    assert PAID == []


async def test_the_rule_is_asked_about_the_execution(live: Live) -> None:
    run = await paused(live, "ada")
    ASKED.clear()
    body = answers_of(run)["ag-ui"]
    async with live.client("ada") as ada:
        path = f"/agent/sessions/{run.session_id}/ag-ui"
        assert await post(ada, path, body) == (200, "")
    assert ("ada", "executions.answer", Execution) in ASKED
    assert (await row(live, run.id)).status == "pending"


async def test_who_may_not_make_sessions_makes_none_by_a_message_or_a_fork(live: Live) -> None:
    run = await paused(live, "guest")
    store, services = live.services.store, live.services

    mine = SessionFilter(tenant_id="default", user_id="guest")
    before = await store.read(lambda tx: tx.sessions(mine, before=None, limit=99))
    text = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    async with live.client("guest") as guest:
        for path, body in {
            "/agent/sessions": {},
            "/agent/messages": {"content": "hi"},
            f"/agent/executions/{run.id}/fork": {"message": "again"},
            "/agent/ag-ui": ag_ui(messages=[said("hi")]),
            "/agent/ai-sdk": {"messages": [text]},
        }.items():
            assert (path, await post(guest, path, body)) == (path, (403, "not_allowed"))
        path = f"/agent/sessions/{run.session_id}/messages"
        assert await post(guest, path, {"content": "more"}) == (202, "")
    assert services.metrics.live_connections.value(kind="stream") == 0
    after = await store.read(lambda tx: tx.sessions(mine, before=None, limit=99))
    assert [each.id for each in after] == [each.id for each in before]


@pytest.mark.parametrize("way", ["ag-ui", "ai-sdk"])
async def test_who_may_open_no_more_streams_sends_nothing_through_one(live: Live, way: str) -> None:
    session = await live.session()
    text = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    body = ag_ui(messages=[said("hi")]) if way == "ag-ui" else {"messages": [text]}
    seats, ada = live.services.feeds.seats, Principal(user_id="ada")

    def has_free_seat() -> bool:
        try:
            with seats.hold(ada):
                return True
        except TooManyError:
            return False

    async with live.client() as client:
        path = f"/agent/sessions/{session.id}/{way}"
        await until(has_free_seat)  # the stream of an earlier test may not be closed yet
        with seats.hold(ada):
            refused = await post(client, path, body)
        bad = await post(client, path, {"messages": "none"})
        kept = await live.services.store.read(lambda tx: tx.messages(session.id, limit=9))
        # A wish that was refused gave its seat back.
        allowed = await post(client, path, body)
    assert (refused, bad) == ((429, "too_many_streams"), (422, "bad_input"))
    assert allowed == (200, "")
    assert kept == []
