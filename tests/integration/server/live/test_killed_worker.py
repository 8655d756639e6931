"""A worker is killed in the middle of streamed text and another one goes on: every client shows the
whole text once. Real processes: a server and two workers on one database, and stock clients.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI

from stepwell.ids import new_id
from tests import message_list
from tests.browser.serving import environment
from tests.browser.stage import HELD
from tests.integration.server.live.node_clients import NodeClient, needs_node, node_client
from tests.integration.server.live.story_app import ENDING, HELD_AFTER, story
from tests.servers.postgres_server import database_of_its_own
from tests.servers.server_process import running

ROOT = Path(__file__).parents[4]
APP = "tests.integration.server.live.story_app:agents"
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)")
SECONDS = 90
Json = dict[str, Any]
pytestmark = needs_node


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of either kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'stepwell.db'}"
        return
    server_url = request.getfixturevalue("postgres_url")
    with database_of_its_own(server_url, f"killed_{new_id()}") as url:
        yield url


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.servers.stepwell_command", *arguments]


@contextmanager
def worker(database: str, log: Path, **settings: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker process."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            _command("worker", APP, "--db", database),
            cwd=ROOT,
            env=environment(**settings),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(SECONDS)
        assert process.stdin is not None
        process.stdin.close()


class Follower:
    """What one client makes of the envelopes of a session: the text that it shows, each time."""

    def __init__(self) -> None:
        self._list = message_list.empty_list()
        self.shown: list[str] = [""]
        self.is_over = False

    def hear(self, envelope: Json) -> None:
        """Take the next one."""
        self._list = message_list.received(self._list, envelope)
        shown = message_list.messages(self._list)
        text = "".join(one["content"] for one in shown if one["role"] == "assistant")
        if text != self.shown[-1]:
            self.shown.append(text)
        if envelope["type"] == "agent.status":
            self.is_over = envelope["payload"]["status"] == "completed"

    @property
    def text(self) -> str:
        """What is shown now."""
        return self.shown[-1]


async def follow(url: str, session: str, follower: Follower, *, at_once: int = 10**9) -> None:
    """Follow a session over SSE; breaks off after ``at_once`` events and goes on behind them."""
    last = "0"
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        while not follower.is_over:
            headers = {"Last-Event-ID": last}
            address = f"{url}/agent/sessions/{session}/events"
            async with client.stream("GET", address, headers=headers) as response:
                count = 0
                async for line in response.aiter_lines():
                    if line.startswith("id: "):
                        last = line.removeprefix("id: ")
                    if line.startswith("data: "):
                        follower.hear(json.loads(line.removeprefix("data: ")))
                        count += 1
                    if not line and (count >= at_once or follower.is_over):
                        break


async def listen(client: NodeClient, follower: Follower) -> None:
    """Follow what pusher-js hears."""
    while not follower.is_over:
        for _, envelope in (await client(events=1))["events"]:
            follower.hear(envelope)


@asynccontextmanager
async def pusher(url: str, session: str) -> AsyncIterator[NodeClient]:
    async with node_client("live_clients.mjs") as client:
        port = int(url.rsplit(":", 1)[1])
        begin = {"mode": "pusher", "key": "stepwell", "port": port, "headers": {}}
        begun = await client(begin={**begin, "auth": f"{url}/broadcasting/auth"})
        assert begun["state"] == "connected"
        assert await client(join=session) == {"joined": True}
        yield client


async def until_shown(followers: list[Follower], words: str) -> None:
    """Wait until all of them show these words."""
    for _ in range(SECONDS * 50):
        if all(words in follower.text for follower in followers):
            return
        await asyncio.sleep(0.02)
    raise AssertionError([follower.text[-20:] for follower in followers])


async def new_session(url: str) -> str:
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        made = await client.post(f"{url}/agent/sessions", json={"agent_type": "teller"})
    assert made.status_code == 201, made.text
    return made.json()["id"]


async def send(url: str, session: str) -> None:
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        address = f"{url}/agent/sessions/{session}/messages"
        sent = await client.post(address, json={"content": "tell"})
    assert sent.status_code < 300, sent.text


async def completed_text(url: str, session: str) -> str:
    """The streamed text of a chat completion in that session."""
    headers = {"X-Stepwell-Session": session}
    said: Any = [{"role": "user", "content": "tell"}]
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="x", default_headers=headers) as client:
        create = client.chat.completions.create
        stream = await create(model="teller", messages=said, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


@pytest.mark.parametrize("ending", ["", "and it ends otherwise."], ids=["same text", "another"])
async def test_clients_show_the_text_once_over_the_death_of_its_worker(
    tmp_path: Path, database: str, ending: str
) -> None:
    held = tmp_path / "held"
    held.write_text(HELD_AFTER)
    serve = _command("serve", APP, "--db", database, "--port", "0", "--no-worker")
    names = ("plain", "reconnecting", "pusher", "ag-ui", "ai", "openai")
    followers = {name: Follower() for name in names}
    async with AsyncExitStack() as stack:
        url = stack.enter_context(running("stepwell", serve, ADDRESS))
        victim = stack.enter_context(worker(database, tmp_path / "a.log", **{HELD: str(held)}))
        plain, ag_ui, ai_sdk, openai = [await new_session(url) for _ in range(4)]
        group = await stack.enter_async_context(asyncio.TaskGroup())
        ag_client = await stack.enter_async_context(node_client("live_protocols.mjs"))
        ai_client = await stack.enter_async_context(node_client("live_protocols.mjs"))
        pusher_client = await stack.enter_async_context(pusher(url, plain))
        tasks = [
            group.create_task(follow(url, plain, followers["plain"])),
            group.create_task(follow(url, plain, followers["reconnecting"], at_once=4)),
            group.create_task(listen(pusher_client, followers["pusher"])),
            group.create_task(follow(url, ag_ui, followers["ag-ui"])),
            group.create_task(follow(url, ai_sdk, followers["ai"])),
            group.create_task(follow(url, openai, followers["openai"])),
        ]
        await send(url, plain)
        await ag_client(agBegin={"url": f"{url}/agent/ag-ui", "threadId": ag_ui})
        await ai_client(aiBegin={"api": f"{url}/agent/ai-sdk", "id": ai_sdk})
        say = {"say": {"id": "m1", "role": "user", "content": "tell"}}
        ag_ran = group.create_task(ag_client(agRun=say))
        ai_ran = group.create_task(ai_client(aiSend="tell"))
        openai_ran = group.create_task(completed_text(url, openai))
        await until_shown(list(followers.values()), HELD_AFTER.strip())

        stack.enter_context(worker(database, tmp_path / "b.log", **{ENDING: ending}))
        os.kill(victim.pid, signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*tasks, ag_ran, ai_ran, openai_ran)

    whole = story(ending)
    for name, follower in followers.items():
        assert follower.text == whole, name
        # What was shown at any time is the beginning of what one of the workers said.
        wrong = [text for text in follower.shown if not _begins(text, whole)]
        assert wrong == [], name
    _check_ag_ui(ag_ran.result(), whole)
    _check_ai_sdk(ai_ran.result(), whole, is_same=not ending)
    # A client of OpenAI's API can't remove text, so another one follows after a gap.
    before, gap, after = openai_ran.result().rpartition("\n\n")
    assert after == whole
    assert (gap != "") == (ending != "")
    assert story().startswith(before)


def _begins(text: str, whole: str) -> bool:
    return whole.startswith(text) or story().startswith(text)


def _check_ag_ui(ran: Json, whole: str) -> None:
    assert (ran["error"], ran["warnings"]) == (None, [])
    said = [message["content"] for message in ran["messages"] if message["role"] == "assistant"]
    assert said == [whole]


def _check_ai_sdk(ran: Json, whole: str, *, is_same: bool) -> None:
    assert (ran["errors"], ran["warnings"], ran["status"]) == ([], [], "ready")
    parts = [part for part in ran["messages"][-1]["parts"] if part["type"] == "text"]
    current = [part["text"] for part in parts if "providerMetadata" not in part]
    assert current == [whole]
    if is_same:
        assert len(parts) == 1
