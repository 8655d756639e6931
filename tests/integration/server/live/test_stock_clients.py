"""Stock clients with nothing but the URL: the id of the chat or thread names the session, for its
user only; answers, stop and retries work, and nothing is stored or shown twice."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.user_input import UseUserInput
from stepwell.models import ModelRequest
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, MessageRole, Session
from stepwell.testing import ScriptedModel, call
from stepwell.testing.scripted_model import Scripted
from stepwell.tools import tool
from tests.browser.stage import Line, Scene, StagedModel
from tests.integration.server.live.living import Live, living
from tests.integration.server.live.node_clients import NodeClient, needs_node, node_client

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_node]
Json = dict[str, Any]
PAID: list[int] = []


@tool
def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: How much.
    """
    PAID.append(amount)
    return f"paid {amount}"


def turn(request: ModelRequest) -> Scripted:
    last = request.messages[-1]
    if last.is_tool():
        return f"Done: {last.text}"
    match last.text:
        case "pay":
            return call("pay", id="call_pay", amount=7)
        case "ask":
            return call("user_input", id="call_ask", question="Which city?")
        case text:
            said = [m.text for m in request.messages if m.is_user()]
            return f"{len(said)}: {text}"


def agents() -> dict[str, Agent]:
    capabilities = [UseUserInput(), UseApprovals("pay")]
    helper = Agent(ScriptedModel(turn), tools=[pay], capabilities=capabilities)
    return {"helper": helper}


def _tell(_: Scene) -> Line:
    return Line("".join(f"w{number:03d} " for number in range(400)), piece=5, pause=0.05)


def tellers() -> dict[str, Agent]:
    return {"teller": Agent(StagedModel({"tell": _tell}))}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    folder = tmp_path_factory.mktemp("stock")
    async with living(folder, works=True, made_agents=agents, ping_seconds=0.05) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def telling(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    """A server whose agent takes long, and that waits briefly for clients to come back."""
    folder = tmp_path_factory.mktemp("telling")
    settings = {"ping_seconds": 0.05, "reconnect_seconds": 1.0}
    async with living(folder, works=True, made_agents=tellers, **settings) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[NodeClient]:
    async with node_client("stock_clients.mjs") as made:
        yield made


async def sessions_of(live: Live, user: str) -> list[Session]:
    """The user's sessions, newest first."""
    async with live.client(user) as http:
        listed = (await http.get("/agent/sessions")).json()["items"]
    found = await live.services.store.read(
        lambda tx: tx.sessions_by_id([item["id"] for item in listed])
    )
    return [found[item["id"]] for item in listed]


async def said_in(live: Live, session: Session) -> list[tuple[str, str]]:
    found = await live.services.store.read(lambda tx: tx.messages(session.id, limit=100))
    spoken = (MessageRole.USER, MessageRole.ASSISTANT)
    return [(m.role.value, m.content) for m in found if m.role in spoken]


async def executions_of(live: Live, session: Session) -> list[Execution]:
    found = await live.services.store.read(
        lambda tx: tx.executions(session_id=session.id, limit=100)
    )
    return sorted(found, key=lambda execution: execution.created_at)


async def begin_chat(live: Live, client: NodeClient, user: str, id: str | None = None) -> None:
    given = {"name": user, "url": f"{live.url}/agent/ai-sdk", "headers": {"X-User": user}}
    await client(chat={**given, "id": id} if id else given)


async def begin_agent(live: Live, client: NodeClient, user: str, id: str | None = None) -> None:
    url = f"{live.url}/agent/ag-ui"
    given = {"name": user, "url": url, "headers": {"X-User": user}}
    await client(agent={**given, "threadId": id} if id else given)


def answer_in(chat: Json) -> str:
    assert (chat["errors"], chat["warnings"]) == ([], [])
    return "".join(part.get("text", "") for part in chat["messages"][-1]["parts"])


async def ended(live: Live, id: str) -> Execution:
    """The execution when it is over."""
    async with asyncio.timeout(90):
        while True:
            row = await live.services.store.read(lambda tx: tx.execution(id))
            assert row is not None
            if row.status.is_terminal:
                return row
            await asyncio.sleep(0.02)


# The AI SDK


async def test_the_second_message_of_a_chat_continues_its_session(
    live: Live, client: NodeClient
) -> None:
    await begin_chat(live, client, "ai-1")
    assert answer_in(await client(send={"chat": "ai-1", "text": "hello"})) == "1: hello"
    assert answer_in(await client(send={"chat": "ai-1", "text": "again"})) == "2: again"
    [session] = await sessions_of(live, "ai-1")
    assert [text for _, text in await said_in(live, session)] == [
        "hello",
        "1: hello",
        "again",
        "2: again",
    ]


async def test_users_with_the_same_chat_id_never_meet(live: Live, client: NodeClient) -> None:
    for user in ("ai-2", "ai-3"):
        await begin_chat(live, client, user, "the-same")
        assert answer_in(await client(send={"chat": user, "text": "hello"})) == "1: hello"
    [two], [three] = await sessions_of(live, "ai-2"), await sessions_of(live, "ai-3")
    assert two.id != three.id
    # Nor with the real id of somebody else's session as the chat's id.
    await begin_chat(live, client, "ai-3", two.id)
    assert answer_in(await client(send={"chat": "ai-3", "text": "mine?"})) == "1: mine?"
    assert len(await said_in(live, two)) == 2


async def test_a_chat_can_use_the_id_of_a_session(live: Live, client: NodeClient) -> None:
    session = await live.session("ai-4")
    await begin_chat(live, client, "ai-4", session.id)
    await client(send={"chat": "ai-4", "text": "hello"})
    assert [one.id for one in await sessions_of(live, "ai-4")] == [session.id]


async def test_a_chat_answers_and_approves_with_the_url_alone(
    live: Live, client: NodeClient
) -> None:
    PAID.clear()
    await begin_chat(live, client, "ai-5")
    await client(send={"chat": "ai-5", "text": "ask"})
    answered = await client(output={"chat": "ai-5", "toolCallId": "call_ask", "output": "Rome"})
    assert answer_in(answered) == "Done: Rome"
    asked = await client(send={"chat": "ai-5", "text": "pay"})
    [part] = [p for p in asked["messages"][-1]["parts"] if p["type"] == "dynamic-tool"]
    approval = {"chat": "ai-5", "id": part["approval"]["id"], "approved": True}
    assert answer_in(await client(approve=approval)) == "Done: paid 7"
    assert PAID == [7]


async def test_regenerating_and_editing_are_refused_in_words(
    live: Live, client: NodeClient
) -> None:
    await begin_chat(live, client, "ai-6")
    sent = await client(send={"chat": "ai-6", "text": "hello"})
    edited = {"chat": "ai-6", "text": "other", "messageId": sent["messages"][0]["id"]}
    assert "can't be edited" in (await client(send=edited))["errors"][0]
    again = await client(regenerate={"chat": "ai-6"})
    assert "does not regenerate answers" in again["errors"][0]
    [session] = await sessions_of(live, "ai-6")
    assert len(await said_in(live, session)) == 2


async def test_a_chat_that_stops_cancels_its_run_and_goes_on(
    telling: Live, client: NodeClient
) -> None:
    await begin_chat(telling, client, "ai-7")
    stopped = await client(send={"chat": "ai-7", "text": "tell", "stop": "w002"})
    assert stopped["status"] == "ready"
    [session] = await sessions_of(telling, "ai-7")
    [run] = await executions_of(telling, session)
    assert (await ended(telling, run.id)).status == "cancelled"
    second = await client(send={"chat": "ai-7", "text": "tell", "stop": "w001"})
    assert second["errors"] == []
    assert [role for role, _ in await said_in(telling, session)].count("user") == 2
    runs = await executions_of(telling, session)
    assert (await ended(telling, runs[1].id)).status == "cancelled"


async def test_a_chat_that_comes_back_keeps_its_run(telling: Live, client: NodeClient) -> None:
    body = {"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": [TELL]}]}
    async with telling.client("ai-8") as http:
        async with http.stream("POST", "/agent/ai-sdk", json=body) as response:
            await anext(response.aiter_bytes())
        # As a page that was reloaded, with `resume: true`.
        async with http.stream("GET", "/agent/ai-sdk/c1/stream") as response:
            assert response.status_code == 200
            await asyncio.sleep(2.0)  # longer than clients are waited for
            [session] = await sessions_of(telling, "ai-8")
            [run] = await executions_of(telling, session)
            assert run.status == "running"
        assert (await ended(telling, run.id)).status == "cancelled"
    async with telling.client("ai-9") as foreign:
        assert (await foreign.get("/agent/ai-sdk/c1/stream")).status_code == 204


TELL = {"type": "text", "text": "tell"}


# AG-UI


async def test_the_second_message_of_a_thread_continues_its_session(
    live: Live, client: NodeClient
) -> None:
    for user in ("ag-1", "ag-2"):
        await begin_agent(live, client, user, "the-same")
        first = await client(run={"agent": user, "say": [{"id": "m1", "content": "hello"}]})
        second = await client(run={"agent": user, "say": [{"id": "m2", "content": "again"}]})
        assert (first["error"], first["text"]) == (None, "1: hello")
        assert (second["error"], second["text"]) == (None, "2: again")
    [one], [two] = await sessions_of(live, "ag-1"), await sessions_of(live, "ag-2")
    assert one.id != two.id
    assert len(await said_in(live, one)) == len(await said_in(live, two)) == 4


async def test_a_thread_approves_with_other_arguments(live: Live, client: NodeClient) -> None:
    PAID.clear()
    await begin_agent(live, client, "ag-3")
    paused = await client(run={"agent": "ag-3", "say": [{"id": "m1", "content": "pay"}]})
    [asked] = paused["interrupts"]
    assert "editedArgs" in asked["responseSchema"]["properties"]
    payload = {"approved": True, "editedArgs": {"amount": 5}}
    answer = {"interruptId": asked["id"], "status": "resolved", "payload": payload}
    ran = await client(run={"agent": "ag-3", "resume": [answer]})
    assert ran["outcome"] == "success"
    assert ran["messages"][-1]["content"].endswith("paid 5")
    assert PAID == [5]


async def test_a_retry_after_an_abort_does_not_send_the_old_message_again(
    telling: Live, client: NodeClient
) -> None:
    await begin_agent(telling, client, "ag-4")
    tell = {"content": "tell"}
    await client(run={"agent": "ag-4", "say": [{"id": "m1", **tell}], "abort": "w001"})
    [session] = await sessions_of(telling, "ag-4")
    [run] = await executions_of(telling, session)
    assert (await ended(telling, run.id)).status == "cancelled"
    retried = await client(run={"agent": "ag-4"})
    assert "nothing new" in retried["error"]
    assert len(await executions_of(telling, session)) == 1
    await client(run={"agent": "ag-4", "say": [{"id": "m2", **tell}], "abort": "w001"})
    users = [text for role, text in await said_in(telling, session) if role == "user"]
    assert users == ["tell", "tell"]


async def test_messages_before_an_aborted_one_are_not_sent_again(live: Live) -> None:
    def body(*ids: str) -> Json:
        said = [{"id": id, "role": "user", "content": f"text of {id}"} for id in ids]
        return {"threadId": "t9", "runId": "r", "messages": said}

    async with live.client("ag-5") as http:
        for ids in (("m1", "m2"), ("m1", "m2", "m3"), ("m1", "m2", "m3")):
            assert (await http.post("/agent/ag-ui", json=body(*ids))).status_code == 200
    [session] = await sessions_of(live, "ag-5")
    users = [text for role, text in await said_in(live, session) if role == "user"]
    assert users == ["text of m1\n\ntext of m2", "text of m3"]


async def test_a_retried_message_leaves_the_question_open(live: Live) -> None:
    said = [{"id": "m1", "role": "user", "content": "ask"}]
    body = {"threadId": "t1", "runId": "r", "messages": said}
    async with live.client("ag-6") as http:
        first = await http.post("/agent/ag-ui", json=body)
        second = await http.post("/agent/ag-ui", json=body)
    assert '"interrupt"' in first.text
    assert '"interrupt"' in second.text
    [session] = await sessions_of(live, "ag-6")
    [run] = await executions_of(live, session)
    assert run.status == "paused"


async def test_first_messages_that_come_together_make_one_session(live: Live) -> None:
    def body(id: str) -> Json:
        parts = [{"type": "text", "text": id}]
        return {"id": "c1", "messages": [{"id": id, "role": "user", "parts": parts}]}

    async with live.client("ai-10") as http:
        posts = [http.post("/agent/ai-sdk", json=body(f"m{number}")) for number in range(5)]
        answers = await asyncio.gather(*posts)
    assert {answer.status_code for answer in answers} == {200}
    [session] = await sessions_of(live, "ai-10")
    assert len(await said_in(live, session)) == 10


async def test_the_applications_rule_is_asked_about_the_named_session(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    asked: list[tuple[str, str | None]] = []

    def rule(_who: Principal, action: str, of: Session | Execution | None) -> bool:
        asked.append((action, None if of is None else of.id))
        return not (of is not None and action in ("messages.send", "sessions.follow"))

    folder = tmp_path_factory.mktemp("rule")
    async with living(folder, made_agents=agents, authorize=rule) as live:
        session = await live.session("ai-11")
        message = {"id": "u1", "role": "user", "parts": [TELL]}
        run = {"threadId": session.id, "runId": "r", "messages": [USER]}
        named = {"X-Stepwell-Session": session.id}
        completion = {"model": "helper", "messages": [USER]}
        async with live.client("ai-11") as http:
            answers = [
                await http.post("/agent/ai-sdk", json={"id": session.id, "messages": [message]}),
                await http.get(f"/agent/ai-sdk/{session.id}/stream"),
                await http.post("/agent/ag-ui", json=run),
                await http.post("/v1/chat/completions", json=completion, headers=named),
            ]
    assert [answer.status_code for answer in answers] == [403] * 4
    assert asked.count(("messages.send", session.id)) == 3


USER = {"id": "u1", "role": "user", "content": "tell"}
