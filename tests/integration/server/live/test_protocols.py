"""The clients of AG-UI and the AI SDK talk with sessions, whichever worker runs them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.user_input import UseUserInput
from stepwell.models import ModelRequest
from stepwell.sessions.records import MessageRole, Session
from stepwell.testing import ScriptedModel, call
from stepwell.testing.scripted_model import Scripted
from stepwell.tools import tool
from tests.integration.server.live.living import Live, living
from tests.integration.server.live.node_clients import NodeClient, needs_node, node_client
from tests.integration.server.serving import add, turn_for

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_node]
ADA = {"X-User": "ada"}
Json = dict[str, Any]


@tool
def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: How much.
    """
    return f"paid {amount}"


def turn(request: ModelRequest) -> Scripted:
    if request.messages[-1].text == "pay":
        return call("pay", id="call_pay", amount=7)
    return turn_for(request)


def helper() -> dict[str, Agent]:
    capabilities = [UseUserInput(), UseApprovals("pay")]
    return {"helper": Agent(ScriptedModel(turn), tools=[add, pay], capabilities=capabilities)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    folder = tmp_path_factory.mktemp("protocols")
    async with living(folder, works=True, made_agents=helper, ping_seconds=0.05) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[NodeClient]:
    async with node_client("live_protocols.mjs") as made:
        yield made


async def stored(live: Live, session: Session) -> list[tuple[str, str]]:
    """What the session's people said."""
    found = await live.services.store.read(lambda tx: tx.messages(session.id, limit=100))
    spoken = (MessageRole.USER, MessageRole.ASSISTANT)
    return [(m.role.value, m.content) for m in found if m.role in spoken]


# AG-UI


async def ag_ui(
    live: Live, client: NodeClient, session: Session | None = None, *messages: Json
) -> Session:
    session = session or await live.session()
    url = f"{live.url}/agent/sessions/{session.id}/ag-ui"
    await client(agBegin={"url": url, "headers": ADA, "threadId": "t1", "messages": messages})
    return session


def said(id: str, text: str) -> Json:
    return {"say": {"id": id, "role": "user", "content": text}}


def shown(ran: Json) -> list[tuple[str, str | None]]:
    assert ran["error"] is None
    assert ran["warnings"] == []
    return [(message["role"], message.get("content")) for message in ran["messages"]]


async def test_an_ag_ui_page_talks_with_a_session(live: Live, client: NodeClient) -> None:
    session = await ag_ui(live, client)
    first = await client(agRun=said("m1", "hello"))
    assert shown(first) == [("user", "hello"), ("assistant", "You said: hello")]
    assert first["text"] == "You said: hello"
    assert (first["types"][0], first["types"][-1]) == ("RUN_STARTED", "RUN_FINISHED")
    second = await client(agRun=said("m2", "add"))
    assert shown(second)[2:] == [
        ("user", "add"),
        ("assistant", None),
        ("tool", "3"),
        ("assistant", "Done: 3"),
    ]
    [asked] = [m for m in second["messages"] if m.get("toolCalls")]
    assert asked["toolCalls"][0]["function"] == {"name": "add", "arguments": '{"a":1,"b":2}'}
    assert "TOOL_CALL_START" in second["types"]
    assert await stored(live, session) == [
        ("user", "hello"),
        ("assistant", "You said: hello"),
        ("user", "add"),
        ("assistant", "Done: 3"),
    ]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"status": "resolved", "payload": {"approved": True}}, "paid 7"),
        ({"status": "resolved", "payload": {"approved": False, "message": "no"}}, "denied"),
        ({"status": "cancelled"}, "did not answer"),
    ],
)
async def test_an_ag_ui_page_approves_or_denies(
    live: Live, client: NodeClient, answer: Json, result: str
) -> None:
    await ag_ui(live, client)
    paused = await client(agRun=said("m1", "pay"))
    assert paused["outcome"] == "interrupt"
    assert paused["interrupts"][0]["toolCallId"] == "call_pay"
    named = paused["interrupts"][0]["id"]
    ran = await client(agRun={"resume": [{"interruptId": named, **answer}]})
    [told] = [content for role, content in shown(ran) if role == "tool"]
    assert result in (told or "")
    assert ran["outcome"] == "success"


async def test_an_ag_ui_page_answers_a_question(live: Live, client: NodeClient) -> None:
    await ag_ui(live, client)
    paused = await client(agRun=said("m1", "ask"))
    answer = {"interruptId": paused["interrupts"][0]["id"], "status": "resolved", "payload": "Rome"}
    ran = await client(agRun={"resume": [answer]})
    assert shown(ran)[-1] == ("assistant", "Done: Rome")


async def test_who_writes_instead_of_answering_goes_on(live: Live, client: NodeClient) -> None:
    session = await ag_ui(live, client)
    paused = await client(agRun=said("m1", "ask"))
    await ag_ui(live, client, session, *paused["messages"])  # the page is loaded anew
    ran = await client(agRun=said("m2", "hello"))
    assert shown(ran)[-1] == ("assistant", "You said: hello")
    assert await stored(live, session) == [
        ("user", "ask"),
        ("user", "hello"),
        ("assistant", "Done: The person did not answer."),
        ("assistant", "You said: hello"),
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "bad_input"),
        ({"messages": []}, "nothing_new"),
        ({"messages": [{"id": "a", "role": "assistant", "content": "x"}]}, "nothing_new"),
        ({"resume": [{"interruptId": "q_0", "status": "resolved"}]}, "not_waiting"),
        ({"resume": [{"interruptId": "q_0", "status": "odd"}]}, "bad_input"),
    ],
)
async def test_what_an_ag_ui_client_may_not_send_is_refused(
    live: Live, body: Json, code: str
) -> None:
    session = await live.session()
    whole = {"threadId": "t", "runId": "r", "messages": [], **body} if body else body
    async with live.client() as client:
        answer = await client.post(f"/agent/sessions/{session.id}/ag-ui", json=whole)
    assert answer.status_code in (409, 422)
    assert answer.json()["code"] == code


# The AI SDK


async def ai_sdk(live: Live, client: NodeClient, **more: Any) -> Session:
    session = await live.session()
    api = f"{live.url}/agent/sessions/{session.id}/ai-sdk"
    await client(aiBegin={"api": api, "headers": ADA, "id": "chat", **more})
    return session


def parts(chat: Json) -> list[Any]:
    """What the newest answer shows."""
    assert chat["errors"] == []
    assert chat["warnings"] == []
    told: list[Any] = []
    for part in chat["messages"][-1]["parts"]:
        if part["type"] == "text":
            told.append(part["text"])
        if part["type"] == "dynamic-tool":
            told.append((part["toolName"], part["state"], part["input"], part.get("output")))
    return told


async def test_a_chat_of_the_ai_sdk_talks_with_a_session(live: Live, client: NodeClient) -> None:
    session = await ai_sdk(live, client)
    assert parts(await client(aiSend="hello")) == ["You said: hello"]
    chat = await client(aiSend="add")
    called = ("add", "output-available", {"a": 1, "b": 2}, 3)
    assert parts(chat) == [called, "Done: 3"]
    assert chat["finishes"] == ["stop", "stop"]
    assert [role for role, _ in await stored(live, session)] == ["user", "assistant"] * 2


async def test_a_chat_answers_and_approves(live: Live, client: NodeClient) -> None:
    await ai_sdk(live, client)
    await client(aiSend="ask")
    answered = await client(aiOutput={"toolCallId": "call_ask", "output": "Rome"})
    called = ("user_input", "output-available", {"question": "Which city?"}, "Rome")
    assert parts(answered) == [called, "Done: Rome"]
    asked = await client(aiSend="pay")
    [part] = [p for p in asked["messages"][-1]["parts"] if p["type"] == "dynamic-tool"]
    assert part["state"] == "approval-requested"
    approved = await client(aiApprove={"id": part["approval"]["id"], "approved": True})
    assert parts(approved) == [
        ("pay", "output-available", {"amount": 7}, "paid 7"),
        "Done: paid 7",
    ]
    denied = await client(aiSend="pay")
    [part] = [p for p in denied["messages"][-1]["parts"] if p["type"] == "dynamic-tool"]
    denied = await client(aiApprove={"id": part["approval"]["id"], "approved": False})
    assert parts(denied)[0][1] == "output-denied"


async def test_a_chat_answers_calls_that_have_the_same_id(live: Live, client: NodeClient) -> None:
    await ai_sdk(live, client)
    used: list[str] = []
    for city in ("Rome", "Oslo"):
        asked = await client(aiSend="ask")
        [part] = [p for p in asked["messages"][-1]["parts"] if p["type"] == "dynamic-tool"]
        used.append(part["toolCallId"])
        answered = await client(aiOutput={"toolCallId": used[-1], "output": city})
        called = ("user_input", "output-available", {"question": "Which city?"}, city)
        assert parts(answered) == [called, f"Done: {city}"]
    assert used[0] == "call_ask"
    assert used[1].startswith("call_ask@")


async def test_a_chat_whose_page_was_loaded_anew_finds_nothing_to_go_on_with(
    live: Live, client: NodeClient
) -> None:
    await ai_sdk(live, client)
    await client(aiSend="hello")
    chat = await client(aiResume=True)
    assert chat["requests"][-1] == ["GET", 204]


async def test_a_message_that_is_sent_again_is_told_again_and_not_run_again(live: Live) -> None:
    session = await live.session()
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
    body = {"id": "chat", "messages": [message], "trigger": "submit-message"}
    async with live.client() as client:
        path = f"/agent/sessions/{session.id}/ai-sdk"
        first, second = await client.post(path, json=body), await client.post(path, json=body)
        again = await client.post(path, json={**body, "trigger": "regenerate-message"})
    assert "You said: hello" in first.text
    told = [answer.text.replace(": still here\n\n", "") for answer in (first, second)]
    assert told[0] == told[1]
    assert len(await stored(live, session)) == 2
    assert again.json()["code"] == "no_regeneration"


async def test_a_first_message_makes_its_session(live: Live) -> None:
    message = {"id": "u9", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
    run = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "u8", "role": "user", "content": "hi"}],
    }
    async with live.client("fred") as fred, live.client("bob") as bob:
        chat = await fred.post("/agent/ai-sdk", json={"id": "c", "messages": [message]})
        page = await fred.post("/agent/ag-ui", json=run)
        for answer in (chat, page):
            session_id = answer.headers["x-stepwell-session"]
            assert (await fred.get(f"/agent/sessions/{session_id}")).status_code == 200
            foreign = await bob.post(f"/agent/sessions/{session_id}/ag-ui", json=run)
            assert foreign.status_code == 404
    assert chat.text.endswith("data: [DONE]\n\n")
    assert "RUN_FINISHED" in page.text
