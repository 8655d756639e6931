"""The Pusher broadcaster against a strict server of the Pusher HTTP API."""

import gc
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from stepwell.agent import Agent
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.broadcast_error import BroadcastError
from stepwell.broadcasting.broadcasters.pusher import PusherBroadcaster
from stepwell.clock import SystemClock
from stepwell.testing import FakeClock, ScriptedModel, call
from stepwell.tools import FunctionTool
from tests.servers.byte_server import Answer, ByteServer, Ending
from tests.servers.pusher_api import PusherApi, in_a_thread

APP, KEY, SECRET = "3", "278d425bdf160c739803", "canary-7ad3773142a6692b25b8"


@pytest.fixture
async def api() -> AsyncIterator[PusherApi]:
    async with PusherApi(app_id=APP, key=KEY, secret=SECRET) as running:
        yield running


def status_envelope(**payload: object) -> dict[str, object]:
    return {
        "id": "e1",
        "seq": 1,
        "type": "agent.status",
        "session_id": "s1",
        "execution_id": "x1",
        "timestamp": "2026-01-16T10:05:00.123Z",
        "payload": {"agent_id": "a1", "status": "completed", **payload},
    }


async def test_an_envelope_arrives_as_an_event_of_a_private_channel(api: PusherApi):
    envelope = status_envelope(last_response='Grüße 👋 "quoted" \\ \u2028')
    await PusherBroadcaster(APP, KEY, SECRET, base_url=api.url).broadcast("agent.s1", envelope)
    (event,) = api.events
    assert (event.channel, event.name) == ("private-agent.s1", "agent.status")
    assert event.envelope == envelope


async def test_the_secret_is_in_no_log(api: PusherApi, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    await PusherBroadcaster(APP, KEY, SECRET, base_url=api.url).broadcast("a", status_envelope())
    assert api.url in caplog.text
    assert SECRET not in caplog.text


async def test_a_public_channel_has_no_prefix(api: PusherApi):
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=api.url, private=False)
    await pusher.broadcast("agent.s1", status_envelope())
    assert api.events[0].channel == "agent.s1"


@pytest.mark.parametrize("as_reverb", [False, True])
@pytest.mark.parametrize("text", ["x", '"', "\\", "é", "👋", "\n", "\udce9"])
async def test_what_is_too_large_is_clipped_and_says_so(api: PusherApi, text: str, as_reverb: bool):
    api.as_reverb = as_reverb
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=api.url)
    await pusher.broadcast("x" * 156, status_envelope(last_response=text * 50_000))
    payload = api.events[0].envelope["payload"]
    assert payload["status"] == "completed"
    assert payload["truncated"] is True
    assert len(payload["last_response"]) > 1000
    assert api.refusals == []


async def test_a_server_of_ones_own_may_take_more(api: PusherApi):
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=api.url, max_bytes=10_400)
    await pusher.broadcast("a", status_envelope(last_response="x" * 9_900))
    assert "truncated" not in api.events[0].envelope["payload"]


async def test_chunks_arrive_in_order_over_one_connection(api: PusherApi):
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=api.url)
    for index in range(20):
        await pusher.broadcast("a", {"type": "agent.stream.chunk", "payload": {"index": index}})
    assert [event.envelope["payload"]["index"] for event in api.events] == list(range(20))
    assert api.connections == 1


@pytest.mark.parametrize(
    ("key", "secret", "says"),
    [
        (KEY, "wrong-secret-wrong", "Invalid signature"),
        ("another", SECRET, "Unknown auth_key"),
    ],
)
async def test_wrong_credentials_are_told_as_such(api: PusherApi, key: str, secret: str, says: str):
    pusher = PusherBroadcaster(APP, key, secret, base_url=api.url)
    with pytest.raises(BroadcastError, match="the key or the secret is wrong") as caught:
        await pusher.broadcast("a", status_envelope())
    assert caught.value.status == 401
    assert says in str(caught.value)
    assert secret not in shown(caught.value)
    assert api.events == []


async def test_a_clock_that_is_off_is_told_as_such(api: PusherApi):
    late = FakeClock(start=SystemClock().now() - timedelta(seconds=700))
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=api.url, clock=late)
    with pytest.raises(BroadcastError, match=r"clock is off by minutes.*Timestamp expired"):
        await pusher.broadcast("a", status_envelope())


async def test_another_app_is_told_as_such(api: PusherApi):
    with pytest.raises(BroadcastError, match="answered 404 for app 4: there is no such app"):
        await PusherBroadcaster("4", KEY, SECRET, base_url=api.url).broadcast("a", {"type": "b"})


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (302, "check cluster or base_url"),
        (400, "check the names of channels"),
        (403, "disabled or over its quota"),
        (413, "smaller max_bytes"),
        (429, "send fewer"),
        (500, "the server failed"),
        (503, "the server failed"),
    ],
)
async def test_every_refusal_says_what_to_do_and_hides_the_secret(
    api: PusherApi, status: int, advice: str
):
    api.status, api.says = status, f"we got {SECRET} " + "and more " * 100
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=api.url)
    with pytest.raises(BroadcastError, match=advice) as caught:
        await pusher.broadcast("a", status_envelope())
    assert caught.value.status == status
    assert len(str(caught.value)) < 500
    assert SECRET not in shown(caught.value)
    assert len(api.refusals) == 1


async def test_a_server_that_is_not_there_is_told_as_such(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    async with PusherApi(app_id=APP, key=KEY, secret=SECRET) as gone:
        pass
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=gone.url)
    with pytest.raises(BroadcastError, match=r"could not be reached.*check base_url") as caught:
        await pusher.broadcast("a", status_envelope())
    assert "auth_signature" not in shown(caught.value)
    assert SECRET not in shown(caught.value) + caplog.text


async def test_a_server_that_never_answers_is_given_up(api: PusherApi):
    api.silent = True
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=api.url, timeout=0.2)
    with pytest.raises(BroadcastError, match=r"seconds"):
        await pusher.broadcast("a", status_envelope())


async def test_a_server_that_trickles_is_given_up(byte_server: ByteServer):
    byte_server.script(Answer.json({"x": "y" * 200}, status=500).trickled(1, 0.05))
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=byte_server.url, timeout=0.3)
    with pytest.raises(BroadcastError, match=r"did not answer within 0\.3 seconds"):
        await pusher.broadcast("a", status_envelope())


async def test_a_connection_that_breaks_is_told_as_such(byte_server: ByteServer):
    byte_server.script(Answer(pieces=(), silent=True, ending=Ending.RESET))
    pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=byte_server.url)
    with pytest.raises(BroadcastError, match="closed the connection"):
        await pusher.broadcast("a", status_envelope())


async def test_a_secret_may_change_while_it_runs(api: PusherApi):
    secrets = iter(["first-secret", "second-secret"])
    pusher = PusherBroadcaster(APP, KEY, lambda: next(secrets), base_url=api.url)
    for api.secret in ("first-secret", "second-secret"):
        await pusher.broadcast("a", status_envelope())
    assert len(api.events) == 2


FIRST = """
import asyncio, sys, threading
from stepwell.broadcasting import BroadcastError, PusherBroadcaster

class Watching:
    def find_spec(self, name, path, target=None):
        loaded_by.setdefault(name, threading.current_thread() is threading.main_thread())

async def main():
    pusher = PusherBroadcaster("3", "key", "a-secret-of-ours", base_url="http://127.0.0.1:9")
    sys.meta_path.insert(0, Watching())
    try:
        await pusher.broadcast("a", {"type": "agent.status", "payload": {}})
    except BroadcastError:
        print("broadcast", loaded_by["httpx2"])

loaded_by = {}
asyncio.run(main())
"""


def test_the_first_envelope_loads_the_http_package_beside_the_event_loop():
    done = subprocess.run(
        [sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "broadcast False", done.stderr


def weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}"


def weather_agent() -> Agent:
    model = ScriptedModel([call("weather", city="Oslo"), "It is sunny."])
    return Agent(model, tools=[FunctionTool(weather)])


def test_one_broadcaster_serves_runs_on_several_event_loops():
    with in_a_thread(PusherApi(app_id=APP, key=KEY, secret=SECRET)) as api:
        pusher = PusherBroadcaster(APP, KEY, SECRET, base_url=api.url)
        for session in ("s1", "s2"):
            agent = weather_agent()
            adapter = AgentEventEnvelopeAdapter(pusher, session, f"x-{session}")
            agent.wiretap(adapter.wiretap())
            assert agent.run_sync("Weather?").final_response == "It is sunny."
            sent = [e.envelope for e in api.events if e.channel == f"private-agent.{session}"]
            assert [envelope["seq"] for envelope in sent] == list(range(1, len(sent) + 1))
            assert sent[-1]["payload"]["status"] == "completed"
            assert adapter.delivered == len(sent)
        assert api.refusals == []
    gc.collect()


async def test_a_run_is_unharmed_by_a_server_in_trouble(api: PusherApi):
    api.status = 503
    agent = weather_agent()
    adapter = AgentEventEnvelopeAdapter(
        PusherBroadcaster(APP, KEY, SECRET, base_url=api.url), "s1", "x1"
    )
    agent.wiretap(adapter.wiretap())
    assert (await agent.run("Weather?")).final_response == "It is sunny."
    await adapter.flush()
    assert adapter.failed == len(api.refusals) > 5
    assert adapter.delivered == 0


def shown(error: BaseException) -> str:
    return repr(error) + "".join(traceback.format_exception(error))
