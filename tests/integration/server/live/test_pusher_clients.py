"""pusher-js and Laravel Echo connect unchanged; the Python client signs as we do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pusher
import pytest

from stepwell.broadcasting import channel_auth
from stepwell.server.live.channel_auth import sign
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.principal import Principal
from tests.integration.server.live.living import ADA, Live, until
from tests.integration.server.live.node_clients import NodeClient, needs_node, node_client
from tests.integration.server.serving import APP_SECRET

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODES = ["pusher", "echo-pusher", "echo-reverb"]


@asynccontextmanager
async def connected(live: Live, mode: str, **headers: str) -> AsyncIterator[NodeClient]:
    async with node_client("live_clients.mjs") as client:
        begin = {
            "mode": mode,
            "key": live.services.settings.app_key,
            "port": live.port,
            "headers": headers or {"X-User": "ada"},
            "auth": f"{live.url}/broadcasting/auth",
        }
        begun = await client(begin=begin)
        assert begun["state"] == "connected"
        yield client


@needs_node
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_follows_leaves_and_comes_back(live: Live, mode: str) -> None:
    session = await live.session()
    await live.log(session, "before anybody listens")
    async with connected(live, mode) as client:
        assert await client(join=session.id) == {"joined": True}
        await live.log(session, "one", "two")
        first = (await client(events=2))["events"]
        await client(leave=session.id)
        await until(lambda: live.services.feeds.following == 0)
        await live.log(session, "while away")
        assert await client(join=session.id) == {"joined": True}
        await live.log(session, "three")
        second = (await client(events=1))["events"]
    assert [(name, data["payload"]["content"]) for name, data in [*first, *second]] == [
        ("agent.stream.chunk", "one"),
        ("agent.stream.chunk", "two"),
        ("agent.stream.chunk", "three"),
    ]
    assert [data["seq"] for _, data in [*first, *second]] == [2, 3, 5]


@needs_node
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_may_not_follow_what_is_not_its_own(live: Live, mode: str) -> None:
    session = await live.session("bob")
    async with connected(live, mode) as client:
        refused = await client(join=session.id)
    assert refused["joined"] is False
    assert refused["error"]["status"] == 404


@needs_node
async def test_a_run_is_told_up_to_its_end(live: Live) -> None:
    session = await live.session()
    async with connected(live, "pusher") as client:
        await client(join=session.id)
        message = NewMessage(content="add", session_id=session.id)
        await live.services.intake.send_message(ADA, message)
        told: list[Any] = []
        while not any(data["payload"].get("status") == "completed" for _, data in told):
            told += (await client(events=1))["events"]
    assert [data["seq"] for _, data in told] == list(range(1, len(told) + 1))
    names = [name for name, _ in told]
    assert {"message.sent", "agent.tool.started", "agent.tool.completed"} <= {*names}


@needs_node
async def test_client_events_are_refused_by_the_server(live: Live) -> None:
    session = await live.session()
    async with connected(live, "pusher") as client:
        await client(join=session.id)
        [error] = (await client(trigger=session.id))["errors"]
    assert error["code"] == 4301


@needs_node
async def test_a_socket_is_closed_when_its_key_is_revoked(live: Live) -> None:
    session = await live.session("carol")
    key, secret = await live.services.keys.create(Principal(user_id="carol"), "laptop")
    async with connected(live, "pusher", Authorization=f"Bearer {secret}") as client:
        assert await client(join=session.id) == {"joined": True}
        await live.services.keys.revoke(key.id)
        closed = await client(closed=True)
    assert closed["state"] in ("failed", "disconnected")


async def test_the_python_client_makes_the_same_signature() -> None:
    theirs = pusher.Pusher(app_id="1", key="stepwell", secret=APP_SECRET, cluster="x")
    channel, socket_id = "private-agent.session.s1", "123.456"
    signed = theirs.authenticate(channel, socket_id)
    assert signed["auth"] == f"stepwell:{sign(APP_SECRET, socket_id, channel)}"
    assert signed["auth"] == channel_auth("stepwell", APP_SECRET, socket_id, channel)
    named = theirs.authenticate(channel, socket_id, {"user_id": "ada"})
    ours = sign(APP_SECRET, socket_id, channel, named["channel_data"])
    assert named["auth"] == f"stepwell:{ours}"
