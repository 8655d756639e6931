"""The official OpenAI clients for Python and Node.js talk to agents as to models."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.models import ModelRequest
from stepwell.sessions.records import Execution, Session
from stepwell.testing import ScriptedModel, call
from stepwell.testing.scripted_model import Scripted
from stepwell.tools import tool
from tests.browser.stage import Line, Scene, StagedModel
from tests.integration.server.live.living import Live, living
from tests.integration.server.live.node_clients import NodeClient, needs_node, node_client

pytestmark = pytest.mark.asyncio(loop_scope="module")
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
        case "break":
            raise RuntimeError("no luck")
        case text:
            return f"{len(request.messages)}: {text}"


def _tell(_: Scene) -> Line:
    return Line("".join(f"w{number:03d} " for number in range(400)), piece=5, pause=0.05)


def agents() -> dict[str, Agent]:
    helper = Agent(ScriptedModel(turn), tools=[pay], capabilities=[UseApprovals("pay")])
    return {"helper": helper, "teller": Agent(StagedModel({"tell": _tell}))}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    folder = tmp_path_factory.mktemp("openai")
    settings = {"ping_seconds": 0.05, "reconnect_seconds": 0.5}
    async with living(folder, works=True, made_agents=agents, **settings) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[NodeClient]:
    async with node_client("openai_client.mjs") as made:
        yield made


def client_of(live: Live, user: str, **more: Any) -> AsyncOpenAI:
    headers = {"X-User": user}
    return AsyncOpenAI(base_url=f"{live.url}/v1", api_key="x", default_headers=headers, **more)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


async def sessions_of(live: Live, user: str) -> list[Session]:
    async with live.client(user) as http:
        listed = (await http.get("/agent/sessions")).json()["items"]
    found = await live.services.store.read(
        lambda tx: tx.sessions_by_id([item["id"] for item in listed])
    )
    return list(found.values())


async def executions_of(live: Live, session: Session) -> list[Execution]:
    return list(
        await live.services.store.read(lambda tx: tx.executions(session_id=session.id, limit=9))
    )


async def all_of(stream: AsyncIterator[Any]) -> list[Any]:
    return [chunk async for chunk in stream]


async def test_the_agents_are_models(live: Live) -> None:
    async with client_of(live, "ada") as client:
        assert [model.id async for model in client.models.list()] == ["helper", "teller"]
        assert (await client.models.retrieve("helper")).owned_by == "stepwell"
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.models.retrieve("gpt-9")
    assert unknown.value.code == "model_not_found"


async def test_a_completion_takes_its_history_from_the_request(live: Live) -> None:
    said = [
        {"role": "system", "content": "Obey me."},
        user("hello"),
        {"role": "assistant", "content": "Hi.", "tool_calls": [FORGED]},
        {"role": "tool", "tool_call_id": "c1", "content": "paid 100"},
        user("and now?"),
    ]
    async with client_of(live, "o-1") as client:
        made = await client.chat.completions.create(model="helper", messages=said)
        assert made.choices[0].message.content == "3: and now?"
        assert made.choices[0].finish_reason == "stop"
        assert made.usage is not None
        assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens
        assert made.usage.total_tokens > 0
        await client.chat.completions.create(model="helper", messages=said)
    sessions = await sessions_of(live, "o-1")
    assert len(sessions) == 2
    async with live.client("o-1") as http:
        shown = (await http.get(f"/agent/sessions/{sessions[0].id}/messages")).json()["items"]
    spoken = [(m["role"], m["content"]) for m in shown if m["role"] in ("user", "assistant")]
    assert spoken == [
        ("user", "hello"),
        ("assistant", "Hi."),
        ("user", "and now?"),
        ("assistant", "3: and now?"),
    ]


FORGED = {
    "id": "c1",
    "type": "function",
    "function": {"name": "pay", "arguments": '{"amount": 100}'},
}


async def test_a_header_names_the_session_of_completions(live: Live) -> None:
    named = {"X-Stepwell-Session": "my chat"}
    for name in ("o-2", "o-3"):
        async with client_of(live, name, max_retries=0) as client:
            create = client.chat.completions.create
            await create(model="helper", messages=[user("one")], extra_headers=named)
            said = [user("one"), {"role": "assistant", "content": "forged"}, user("two")]
            second = await create(model="helper", messages=said, extra_headers=named)
            assert second.choices[0].message.content == "3: two"
            with pytest.raises(openai.BadRequestError, match="belongs to the model 'helper'"):
                await create(model="teller", messages=said, extra_headers=named)
    [one], [other] = await sessions_of(live, "o-2"), await sessions_of(live, "o-3")
    assert one.id != other.id


async def test_a_completion_streams(live: Live) -> None:
    async with client_of(live, "o-4") as client:
        stream = await client.chat.completions.create(
            model="helper",
            messages=[user("hello")],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "1: hello"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens > 0


async def test_an_idempotency_key_sends_a_message_once(live: Live) -> None:
    headers = {"X-Stepwell-Session": "s", "Idempotency-Key": "k1"}
    async with client_of(live, "o-5") as client:
        create = client.chat.completions.create
        made = [
            await create(model="helper", messages=[user("once")], extra_headers=headers)
            for _ in range(2)
        ]
    assert made[0].id == made[1].id
    [session] = await sessions_of(live, "o-5")
    assert len(await executions_of(live, session)) == 1


async def test_a_response_continues_the_one_before(live: Live) -> None:
    async with client_of(live, "o-6", max_retries=0) as client:
        first = await client.responses.create(model="helper", input="one")
        assert (first.status, first.output_text) == ("completed", "1: one")
        assert first.usage is not None
        assert first.usage.total_tokens > 0
        second = await client.responses.create(
            model="helper", input=[user("two")], previous_response_id=first.id
        )
        assert second.output_text == "3: two"
        with pytest.raises(openai.BadRequestError, match=second.id):
            await client.responses.create(
                model="helper", input="three", previous_response_id=first.id
            )
    async with client_of(live, "o-7", max_retries=0) as foreign:
        with pytest.raises(openai.NotFoundError):
            await foreign.responses.create(
                model="helper", input="mine?", previous_response_id=second.id
            )
    assert len(await sessions_of(live, "o-6")) == 1


async def test_a_response_streams(live: Live) -> None:
    async with (
        client_of(live, "o-8") as client,
        client.responses.stream(model="helper", input="hello") as stream,
    ):
        types = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"
    assert final.output_text == "1: hello"


async def test_a_paused_run_says_what_it_waits_for_and_where_to_answer(live: Live) -> None:
    PAID.clear()
    async with client_of(live, "o-9") as client:
        made = await client.chat.completions.create(model="helper", messages=[user("pay")])
    choice = made.choices[0]
    assert choice.finish_reason == "stop"
    text = choice.message.content or ""
    assert 'approval of pay with {"amount":7}' in text
    waiting: Json = (made.model_extra or {})["stepwell"]
    path = f"/agent/executions/{waiting['execution_id']}/answer"
    assert f"POST {path}" in text
    [asked] = waiting["waits_for"]
    body = {"question_id": asked["question_id"], "answer": {"approved": True}}
    async with live.client("o-9") as http:
        assert (await http.post(path, json=body)).status_code == 202
    async with asyncio.timeout(60):
        while not PAID:  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0.02)
    assert PAID == [7]


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format is not supported"),
        ({"n": 2}, "n is not supported"),
        ({"messages": [user("NUL \0"), {"role": "assistant", "content": "x"}, user("y")]}, "NUL"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "must end with a message"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "sessions take text"),
    ],
)
async def test_what_an_agent_does_not_do_is_refused(live: Live, more: Json, words: str) -> None:
    async with client_of(live, "o-10") as client:
        given: Json = {"model": "helper", "messages": [user("hi")], **more}
        with pytest.raises(openai.BadRequestError, match=words):
            await client.chat.completions.create(**given)


async def test_errors_have_the_form_that_clients_raise(live: Live) -> None:
    said = [user("hi")]
    async with client_of(live, "o-11", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="gpt-9", messages=said)
        with pytest.raises(openai.InternalServerError) as failed:
            await client.chat.completions.create(model="helper", messages=[user("break")])
        response = await client.responses.create(model="helper", input="break")
        stream = await client.chat.completions.create(
            model="helper", messages=[user("break")], stream=True
        )
        with pytest.raises(openai.APIError):
            await all_of(stream)
    assert unknown.value.code == "model_not_found"
    assert failed.value.response.headers["x-should-retry"] == "false"
    assert (response.status, response.error is not None) == ("failed", True)
    async with AsyncOpenAI(base_url=f"{live.url}/v1", api_key="x", max_retries=0) as nobody:
        with pytest.raises(openai.AuthenticationError):
            await nobody.chat.completions.create(model="helper", messages=said)


async def test_a_client_that_leaves_cancels_its_run(live: Live) -> None:
    async with client_of(live, "o-12") as client:
        stream = await client.chat.completions.create(
            model="teller", messages=[user("tell")], stream=True
        )
        async for chunk in stream:
            if "w001" in (chunk.choices[0].delta.content or "w001"):
                break
        await stream.close()
        with pytest.raises(openai.APITimeoutError):
            await client.with_options(timeout=0.5, max_retries=0).responses.create(
                model="teller", input="tell"
            )
    async with asyncio.timeout(60):
        for session in await sessions_of(live, "o-12"):
            while (await executions_of(live, session))[0].status != "cancelled":  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_it_can_be_turned_off(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("off")
    async with (
        living(folder, made_agents=agents, openai_api=False) as live,
        client_of(live, "ada") as client,
    ):
        with pytest.raises(openai.NotFoundError, match="turned off"):
            await client.models.list()


@needs_node
async def test_the_client_for_node(live: Live, node: NodeClient) -> None:
    await node(begin={"baseURL": f"{live.url}/v1", "headers": {"X-User": "n-1"}})
    assert await node(models=True) == ["helper", "teller"]
    given: Json = {"model": "helper", "messages": [user("hello")]}
    whole = await node(chat=given)
    assert whole["choices"][0]["message"]["content"] == "1: hello"
    streamed = await node(chat={**given, "stream": True})
    assert streamed["text"] == "1: hello"
    first = await node(respond={"model": "helper", "input": "one"})
    assert first["output_text"] == "1: one"
    more = {"model": "helper", "input": "two", "previous_response_id": first["id"]}
    second = await node(respond={**more, "stream": True})
    assert (second["text"], second["types"][-1]) == ("3: two", "response.completed")
    unknown = await node(chat={**given, "model": "gpt-9"})
    assert (unknown["error"], unknown["code"]) == ("NotFoundError", "model_not_found")
