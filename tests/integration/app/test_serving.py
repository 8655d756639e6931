"""``stepwell serve``, ``worker`` and ``keys`` as a user runs them: processes on loopback."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import json

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
AGENTS = """
from stepwell import Agent
from stepwell.testing import MockTool, ScriptedModel, call

def script(request):
    last = request.messages[-1]
    return call("look") if last.tool_result is None else f"It says {last.text}."

helper = Agent(ScriptedModel(script), tools=[MockTool.returning("look", "hello")])
"""


@asynccontextmanager
async def stepwell(folder: Path, *arguments: str) -> AsyncIterator[str]:
    """A command that goes on; gives its first line, and ends it in good order."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stepwell", *arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        if not line:
            _, errors = await process.communicate()
            pytest.fail(f"stepwell {' '.join(arguments)} ended: {errors.decode()}")
        yield line.decode()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0, errors.decode()
    assert b"Traceback" not in errors, errors.decode()


async def ran(folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stepwell", *arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), errors.decode()


def answer_in(events: list[dict[str, Any]]) -> str:
    """The final answer that the events tell."""
    payloads = [event["payload"] for event in events]
    return next(it["content"] for it in payloads if it.get("event_type") == "execution.completed")


async def followed(client: httpx2.AsyncClient, sent: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of an execution, until it is over."""
    session, execution = sent["session"]["id"], sent["execution"]["id"]
    path = f"/agent/sessions/{session}/events?after=0&execution={execution}"
    async with client.stream("GET", path, timeout=60) as stream:
        assert stream.status_code == 200
        lines = [line async for line in stream.aiter_lines() if line.startswith("data: {")]
    events = [json.decode(line.removeprefix("data: ")) for line in lines]
    return [event for event in events if "seq" in event]


async def test_one_command_on_an_empty_folder_runs_an_agent_and_tells_it_live(
    tmp_path: Path,
) -> None:
    async with stepwell(tmp_path, "serve", "--port", "0") as line:
        base_url = ADDRESS.search(line)
        assert base_url is not None
        async with httpx2.AsyncClient(base_url=base_url.group()) as client:
            answer = await client.post("/agent/messages", json={"content": "What time is it?"})
            assert answer.status_code == 202
            events = await followed(client, answer.json())
            ready = (await client.get("/ready")).json()
            metrics = (await client.get("/metrics")).text
    # Text that is being generated has the number of the entry that it follows.
    entries = [event for event in events if not event["id"].startswith("~")]
    assert [event["seq"] for event in entries] == list(range(1, len(entries) + 1))
    types = [event["payload"].get("event_type", event["type"]) for event in events]
    assert types[:3] == ["message.sent", "execution.queued", "execution.started"]
    assert {"tool.called", "agent.stream.chunk", "execution.completed"} <= set(types)
    said = answer_in(events)
    assert "> What time is it?" in said
    assert ready["status"] == "ready"
    assert 'stepwell_write_seconds_count{name="step"}' in metrics
    assert set(os.listdir(tmp_path)) >= {"stepwell.db", "stepwell.db.secret"}


async def test_servers_and_workers_share_postgresql(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    app = ("agents:helper", "--db", postgres_url)
    async with (
        stepwell(tmp_path, "serve", *app, "--port", "0") as line,
        stepwell(tmp_path, "worker", *app) as works,
    ):
        base_url = ADDRESS.search(line)
        assert base_url is not None
        async with httpx2.AsyncClient(base_url=base_url.group()) as client:
            answer = await client.post("/agent/messages", json={"content": "Look"})
            events = await followed(client, answer.json())
    said = answer_in(events)
    assert said == "It says hello."
    assert "database: " in works
    assert "postgresql:" not in works


async def test_with_keys_nobody_is_let_in_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_AUTH__MODE", "keys")
    code, key, told = await ran(
        tmp_path, "keys", "--db", "sqlite:///stepwell.db", "create", "--user", "ada"
    )
    assert code == 0
    assert key.startswith("sw_")
    key_id = told.splitlines()[-1].split()[1]
    async with stepwell(tmp_path, "serve", "--port", "0") as line:
        base_url = ADDRESS.search(line)
        assert base_url is not None
        async with httpx2.AsyncClient(base_url=base_url.group()) as client:
            assert (await client.get("/agent/sessions")).status_code == 401
            signed = {"Authorization": f"Bearer {key.strip()}"}
            assert (await client.get("/agent/sessions", headers=signed)).status_code == 200
            code, _, _ = await ran(tmp_path, "keys", "revoke", key_id)
            assert code == 0
            assert (await client.get("/agent/sessions", headers=signed)).status_code == 401
    code, listed, _ = await ran(tmp_path, "keys", "list")
    assert "revoked" in listed
    assert key.strip() not in listed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), "beyond this machine"),
        (("nothing:here",), "there is no module 'nothing'"),
        (("agents",), "write module:name"),
        (("--db", "mysql://x/y"), "mysql"),
        (("agents.py:helper",), "write agents:helper"),
        (("agents:nope",), "it could serve agents:helper"),
    ],
)
async def test_a_fault_in_the_configuration_is_told_without_a_traceback(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    code, _, errors = await ran(tmp_path, "serve", "--port", "0", *arguments)
    assert said in errors
    assert "Traceback" not in errors
    assert code == 5


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    async with stepwell(tmp_path, "serve", "--port", "0") as line:
        port = line.strip().rpartition(":")[2]
        other = tmp_path / "other"
        other.mkdir()
        code, _, errors = await ran(other, "serve", "--port", port)
    assert code == 5
    assert errors.startswith(f"stepwell: port {port} of 127.0.0.1 is in use")
    assert "--port" in errors
    assert len(errors.splitlines()) == 1
