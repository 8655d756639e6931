"""The Pusher protocol, spoken with a socket in memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket

from stepwell.broadcasting import channel_auth
from stepwell.server.auth import KeyRing
from stepwell.server.live.channel_auth import authorize_channel
from stepwell.server.live.feeds import Feeds
from stepwell.server.live.pusher import SocketLimits, serve_pusher
from stepwell.server.metrics import Metrics
from stepwell.server.services import Services
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.ports import ACCESS_TOPIC
from stepwell.sessions.principal import Principal
from stepwell.testing import FakeClock
from tests.unit.server.live.logs import LogInMemory
from tests.virtual_time import virtual_time

pytestmark = virtual_time

CHANNEL = "private-agent.session.s1"
ADA = Principal(user_id="ada")
LIMITS = SocketLimits()
SECRET = "secret" * 6
Json = dict[str, Any]


def services_of(log: LogInMemory, **settings: Any) -> Services:
    chosen = ServerSettings(app_key="key", app_secret=SECRET, **settings)
    clock = FakeClock()
    made = SimpleNamespace(
        store=log.as_store,
        clock=clock,
        settings=chosen,
        feeds=Feeds(log.as_store, clock, chosen),
        authorize=None,
        keys=KeyRing(log.as_store, clock),
        metrics=Metrics(),
    )
    return cast("Services", made)


class Client:
    """What is at the other end of the socket."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.socket_id = ""
        self.to_server: asyncio.Queue[Json] = asyncio.Queue()
        self.from_server: asyncio.Queue[Json] = asyncio.Queue()
        self.takes = asyncio.Event()
        self.takes.set()

    async def send(self, message: Any) -> None:
        await self.takes.wait()
        self.from_server.put_nowait(dict(message))

    def say(self, event: str, data: Any = None, **more: Any) -> None:
        self.say_text(json.dumps({"event": event, "data": data or {}, **more}))

    def say_text(self, text: str) -> None:
        self.to_server.put_nowait({"type": "websocket.receive", "text": text})

    def leave(self) -> None:
        self.to_server.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def hears(self) -> Json:
        """The next message, with its data read; or how it was closed."""
        async with asyncio.timeout(90):
            message = await self.from_server.get()
        if message["type"] == "websocket.close":
            return {"closed": message["code"]}
        told = json.loads(message["text"])
        return {**told, "data": json.loads(told["data"])}

    async def joins(self, who: Principal = ADA, **more: Any) -> Json:
        signed = await authorize_channel(self.services, who, self.socket_id, CHANNEL)
        data = {"channel": CHANNEL, "auth": signed.auth, "channel_data": signed.channel_data}
        self.say("pusher:subscribe", {**data, **more})
        return await self.hears()

    async def nothing_more(self) -> bool:
        """Whether a ping is the next thing that is answered."""
        self.say("pusher:ping")
        return (await self.hears())["event"] == "pusher:pong"


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


@asynccontextmanager
async def connected(
    log: LogInMemory,
    *,
    key: str = "key",
    query: str = "protocol=7",
    limits: SocketLimits = LIMITS,
    **settings: Any,
) -> AsyncIterator[Client]:
    services = services_of(log, **settings)
    client = Client(services)
    client.to_server.put_nowait({"type": "websocket.connect"})
    scope = {"type": "websocket", "query_string": query.encode(), "headers": [], "path": "/app"}
    websocket = WebSocket(scope, client.to_server.get, client.send)
    serving = asyncio.create_task(serve_pusher(services, websocket, key, limits))
    assert (await client.from_server.get())["type"] == "websocket.accept"
    try:
        yield client
    finally:
        client.takes.set()
        client.leave()
        async with asyncio.timeout(90):
            await serving
            await services.feeds.close()
        assert services.feeds.following == 0
        assert services.metrics.live_connections.value(kind="socket") == 0


@asynccontextmanager
async def established(log: LogInMemory, **settings: Any) -> AsyncIterator[Client]:
    async with connected(log, **settings) as client:
        hello = await client.hears()
        assert hello["event"] == "pusher:connection_established"
        assert hello["data"]["activity_timeout"] > 0
        client.socket_id = hello["data"]["socket_id"]
        yield client


@pytest.mark.parametrize(
    ("key", "query", "code"),
    [
        ("other", "protocol=7", 4001),
        ("key", "", 4008),
        ("key", "protocol=x", 4006),
        ("key", "protocol=4", 4007),
        ("key", "protocol=8", 4007),
    ],
)
async def test_who_can_not_be_served_is_told_why_and_closed(
    log: LogInMemory, key: str, query: str, code: int
) -> None:
    async with connected(log, key=key, query=query) as client:
        error = await client.hears()
        assert (error["event"], error["data"]["code"]) == ("pusher:error", code)
        assert await client.hears() == {"closed": code}


async def test_a_signed_channel_is_told_its_events_from_now_on(log: LogInMemory) -> None:
    log.append(3)
    async with established(log) as client:
        joined = await client.joins()
        assert joined["event"] == "pusher_internal:subscription_succeeded"
        assert joined["channel"] == CHANNEL
        log.append()
        told = await client.hears()
    assert (told["event"], told["channel"]) == ("agent.stream.chunk", CHANNEL)
    assert (told["data"]["seq"], told["data"]["payload"]) == (4, {"content": "x"})


async def test_a_subscription_with_a_cursor_is_told_what_it_missed(log: LogInMemory) -> None:
    log.append(3)
    async with established(log) as client:
        await client.joins(after=1)
        assert [(await client.hears())["data"]["seq"] for _ in range(2)] == [2, 3]


async def test_a_cursor_that_is_gone_is_told_as_a_reset(log: LogInMemory) -> None:
    log.append(3)
    async with established(log) as client:
        await client.joins(after=9)
        told = await client.hears()
    assert (told["event"], told["data"], told["channel"]) == ("reset", {"newest": 3}, CHANNEL)


@pytest.mark.parametrize(
    "wrong",
    [
        {"auth": "key:0"},
        {"auth": None},
        {"auth": "key:\N{SNAKE}"},
        {"auth": {"key": 1}},
        {"channel_data": '{"user_id":"bob"}'},
        {"channel_data": 7},
        {"channel": "private-agent.session.s2"},
        {"channel": "agent.session.s1"},
        {"channel": "presence-lobby"},
    ],
)
async def test_a_channel_without_its_signature_is_refused(log: LogInMemory, wrong: Json) -> None:
    async with established(log) as client:
        refused = await client.joins(**wrong)
        assert refused["event"] == "pusher:subscription_error"
        assert refused["channel"] == wrong.get("channel", CHANNEL)
        assert (refused["data"]["type"], refused["data"]["status"]) == ("AuthError", 401)
        log.append()
        assert await client.nothing_more()


async def test_a_signature_is_good_for_one_socket_only(log: LogInMemory) -> None:
    async with established(log) as client:
        signed = await authorize_channel(client.services, ADA, "1.1", CHANNEL)
        refused = await client.joins(auth=signed.auth)
    assert refused["event"] == "pusher:subscription_error"


async def test_what_the_applications_own_server_signed_is_taken(log: LogInMemory) -> None:
    async with established(log) as client:
        auth = channel_auth("key", SECRET, client.socket_id, CHANNEL)
        joined = await client.joins(auth=auth, channel_data=None)
        assert joined["event"] == "pusher_internal:subscription_succeeded"


async def test_nothing_is_signed_for_others_or_for_what_is_no_channel(log: LogInMemory) -> None:
    services = services_of(log)
    for who, channel in (
        (Principal(user_id="bob"), CHANNEL),
        (Principal(user_id="ada", tenant_id="other"), CHANNEL),
        (ADA, "private-agent.session.s2"),
        (ADA, "agent.session.s1"),
    ):
        with pytest.raises(NotThereError):
            await authorize_channel(services, who, "1.2", channel)
    with pytest.raises(RefusedError, match="two numbers"):
        await authorize_channel(services, ADA, "1:2", CHANNEL)


async def test_without_a_secret_nothing_is_believed(log: LogInMemory) -> None:
    async with established(log) as client:
        client.services.settings = ServerSettings(app_key="key")  # type: ignore[misc]
        auth = channel_auth("key", "", client.socket_id, CHANNEL)
        client.say("pusher:subscribe", {"channel": CHANNEL, "auth": auth})
        assert (await client.hears())["event"] == "pusher:subscription_error"


async def test_a_channel_that_is_left_is_told_no_more_and_can_be_joined_again(
    log: LogInMemory,
) -> None:
    async with established(log) as client:
        await client.joins()
        client.say("pusher:unsubscribe", {"channel": CHANNEL})
        client.say("pusher:unsubscribe", {"channel": "private-never-joined"})
        assert await client.nothing_more()
        log.append()
        assert await client.nothing_more()
        assert client.services.feeds.following == 0
        joined = await client.joins()
        assert joined["event"] == "pusher_internal:subscription_succeeded"


async def test_a_channel_is_joined_once(log: LogInMemory) -> None:
    async with established(log) as client:
        await client.joins()
        client.say("pusher:subscribe", {"channel": CHANNEL, "auth": "anything"})
        assert await client.nothing_more()
        log.append()
        assert (await client.hears())["event"] == "agent.stream.chunk"
        assert await client.nothing_more()


async def test_a_socket_and_a_user_follow_so_many_channels(log: LogInMemory) -> None:
    async with established(log, limits=SocketLimits(channels=0)) as client:
        refused = await client.joins()
        assert (refused["data"]["type"], refused["data"]["status"]) == ("LimitReached", 429)
    async with established(log, live_connections_per_user=1) as client:
        with client.services.feeds.seats.hold(ADA):
            refused = await client.joins()
            assert (refused["data"]["type"], refused["data"]["status"]) == ("LimitReached", 429)
        joined = await client.joins()
        assert joined["event"] == "pusher_internal:subscription_succeeded"


async def test_client_events_are_refused_and_unknown_ones_ignored(log: LogInMemory) -> None:
    async with established(log) as client:
        await client.joins()
        client.say("client-typing", {"is": True}, channel=CHANNEL)
        refused = await client.hears()
        assert (refused["event"], refused["data"]["code"]) == ("pusher:error", 4301)
        client.say("pusher:signin", {"auth": "x"})
        client.say("pusher:pong")
        assert await client.nothing_more()


@pytest.mark.parametrize(
    "text",
    ["", "[", "[]", "7", '{"event":7}', '{"data":"{}"}', '{"event":"pusher:ping","data":"{"}'],
)
async def test_what_is_no_message_is_told_and_the_socket_stays(log: LogInMemory, text: str) -> None:
    async with established(log) as client:
        client.say_text(text)
        assert (await client.hears())["event"] == "pusher:error"
        assert await client.nothing_more()


async def test_a_message_that_is_too_long_is_not_read(log: LogInMemory) -> None:
    async with established(log) as client:
        client.say("pusher:ping", {"much": "x" * 20_000})
        refused = await client.hears()
        assert "too long" in refused["data"]["message"]


async def test_who_is_silent_is_asked_and_who_does_not_answer_is_closed(log: LogInMemory) -> None:
    limits = SocketLimits(activity_seconds=0.3, pong_seconds=1.0)
    async with connected(log, limits=limits) as client:
        await client.hears()
        assert (await client.hears())["event"] == "pusher:ping"
        client.say("pusher:pong")
        assert (await client.hears())["event"] == "pusher:ping"
        assert (await client.hears())["data"]["code"] == 4201
        assert await client.hears() == {"closed": 4201}


async def test_a_socket_is_closed_when_its_user_may_follow_no_more(log: LogInMemory) -> None:
    async with established(log) as client:
        await client.joins()
        log.owner = "bob"
        log.bus.publish(ACCESS_TOPIC)
        assert (await client.hears())["data"]["code"] == 4009
        assert await client.hears() == {"closed": 4009}


async def test_a_socket_that_takes_nothing_is_cut(log: LogInMemory) -> None:
    async with established(log, live_cut_seconds=0.05) as client:
        await client.joins()
        client.takes.clear()
        log.append(5)
        async with asyncio.timeout(90):
            while client.services.feeds.following:  # noqa: ASYNC110 - what is waited for is theirs
                await asyncio.sleep(0.01)


async def test_when_the_server_ends_a_socket_may_come_again_at_once(log: LogInMemory) -> None:
    async with established(log) as client:
        await client.joins()
        await client.services.feeds.close()
        assert (await client.hears())["data"]["code"] == 4200
        assert await client.hears() == {"closed": 4200}


async def test_a_socket_that_joins_nothing_is_closed(log: LogInMemory) -> None:
    limits = SocketLimits(join_seconds=0.05)
    async with established(log, limits=limits) as client:
        client.say("pusher:subscribe", {"channel": CHANNEL, "auth": "key:wrong"})
        assert (await client.hears())["event"] == "pusher:subscription_error"
        error = await client.hears()
        assert (error["event"], error["data"]["code"]) == ("pusher:error", 4100)
        assert await client.hears() == {"closed": 4100}


async def test_a_socket_that_joined_stays_when_it_leaves_the_channel(log: LogInMemory) -> None:
    async with established(log, limits=SocketLimits(join_seconds=2.0)) as client:
        assert (await client.joins())["event"] == "pusher_internal:subscription_succeeded"
        client.say("pusher:unsubscribe", {"channel": CHANNEL})
        await asyncio.sleep(2.5)
        assert await client.nothing_more()
