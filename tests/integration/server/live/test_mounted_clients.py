"""Stock clients talk to a server that another application mounts below a path."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.routing import Mount

from stepwell.sessions.intake.intake import NewMessage, NewSession
from tests.integration.server.live.living import ADA
from tests.integration.server.live.node_clients import needs_node, node_client
from tests.integration.server.serving import Address, listening, serving

HEADERS = {"X-User": "ada"}


@pytest.fixture
async def mounted(tmp_path: Path) -> AsyncIterator[Address]:
    async with serving(tmp_path) as served:
        host = Starlette(routes=[Mount("/agents", served.app)])
        async with listening(served, app=host) as address:
            yield address


@needs_node
@pytest.mark.parametrize("mode", ["pusher", "echo-pusher", "echo-reverb"])
async def test_sockets_connect_with_ws_path(mounted: Address, mode: str) -> None:
    services = mounted.served.services
    session = await services.intake.create_session(ADA, NewSession())
    begin = {
        "mode": mode,
        "key": services.settings.app_key,
        "port": int(mounted.url.rsplit(":", 1)[1]),
        "headers": HEADERS,
        "auth": f"{mounted.url}/agents/broadcasting/auth",
        "wsPath": "/agents",
    }
    async with node_client("live_clients.mjs") as client:
        assert (await client(begin=begin))["state"] == "connected"
        assert await client(join=session.id) == {"joined": True}
        message = NewMessage(content="hello", session_id=session.id)
        await services.intake.send_message(ADA, message)
        assert (await client(events=1))["events"]


@needs_node
async def test_chats_and_threads_need_only_the_url(mounted: Address) -> None:
    url = f"{mounted.url}/agents/agent"
    async with node_client("stock_clients.mjs") as client:
        await client(chat={"name": "c", "url": f"{url}/ai-sdk", "headers": HEADERS})
        for text in ("one", "two"):
            sent = await client(send={"chat": "c", "text": text})
            assert sent["errors"] == []
        await client(agent={"name": "a", "url": f"{url}/ag-ui", "headers": HEADERS})
        ran = await client(run={"agent": "a", "say": [{"id": "m1", "content": "hello"}]})
    assert sent["messages"][-1]["parts"][1]["text"] == "You said: two"
    assert (ran["error"], ran["text"]) == (None, "You said: hello")


async def test_openai_clients_learn_where_to_answer(mounted: Address) -> None:
    base_url = f"{mounted.url}/agents/v1"
    async with AsyncOpenAI(base_url=base_url, api_key="x", default_headers=HEADERS) as client:
        asked = await client.responses.create(model="helper", input="ask")
    assert "Which city?" in asked.output_text
    assert "POST /agents/agent/executions/" in asked.output_text
