"""How ``stepwell serve`` ends, and what the command line says when it can't do what is asked."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stepwell import Agent
from stepwell.app.agent_app import AgentApp
from stepwell.cli.process import start_application
from stepwell.errors import ConfigurationError
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.records import Execution
from stepwell.stores.database_url import open_store
from stepwell.testing import ScriptedModel

from .test_serving import ADDRESS, answer_in, followed, ran, stepwell

SLOW = """
import asyncio
from pathlib import Path
from stepwell import Agent, tool
from stepwell.tools import ToolEffect
from stepwell.testing import ScriptedModel, call

@tool(effect=ToolEffect.PURE)
async def look() -> str:
    Path("begun").touch()
    while not Path("ending").exists():
        await asyncio.sleep(0.02)
    # Long enough for the worker to be told as well: what delays this delays that, too.
    await asyncio.sleep(1)
    with Path("ended").open("a") as file:
        file.write("x")
    return "hello"

def script(request):
    last = request.messages[-1]
    return call("look") if last.tool_result is None else f"It says {last.text}."

helper = Agent(ScriptedModel(script), tools=[look])
"""


async def stopped_amid_a_tool(folder: Path, number: signal.Signals) -> tuple[int, dict[str, Any]]:
    """Serve, send a message, and send the signal while its tool runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stepwell", "serve", "slow:helper", "--port", "0"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        base_url = ADDRESS.search(line.decode())
        assert base_url is not None
        async with httpx2.AsyncClient(base_url=base_url.group()) as client:
            sent = (await client.post("/agent/messages", json={"content": "Look"})).json()
        async with asyncio.timeout(90):
            while not await asyncio.to_thread((folder / "begun").exists):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.02)
        process.send_signal(number)
        async with asyncio.timeout(90):
            while await listens(base_url.group()):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        (folder / "ending").touch()
        return await asyncio.wait_for(process.wait(), 90), sent
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def listens(base_url: str) -> bool:
    """Whether anybody takes connections there."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", int(base_url.rsplit(":", 1)[1]))
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def execution_of(folder: Path, id: str) -> Execution:
    store = await open_store(f"sqlite:///{folder}/stepwell.db")
    try:
        row = await store.read(lambda tx: tx.execution(id))
    finally:
        await store.close()
    assert row is not None
    return row


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_that_is_told_to_end_hands_back_what_it_worked_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    code, sent = await stopped_amid_a_tool(tmp_path, number)
    row = await execution_of(tmp_path, sent["execution"]["id"])
    assert code == 0
    assert (row.status, row.crashes, row.worker_id) == (ExecutionStatus.PENDING, 0, None)

    async with stepwell(tmp_path, "serve", "slow:helper", "--port", "0") as line:
        base_url = ADDRESS.search(line)
        assert base_url is not None
        async with httpx2.AsyncClient(base_url=base_url.group()) as client:
            events = await followed(client, sent)
    said = answer_in(events)
    assert said == "It says hello."
    assert (tmp_path / "ended").read_text() == "x"


async def test_a_key_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    await ran(tmp_path, "keys", "--db", "sqlite:///stepwell.db", "create", "--user", "ada")
    code, _, errors = await ran(tmp_path, "keys", "revoke", "nope")
    assert code == 1
    assert errors.startswith("stepwell: there is no")
    assert len(errors.splitlines()) == 1


class WithoutDatabase(AgentApp):
    """Its database does not answer."""

    async def start(self) -> None:
        await asyncio.sleep(0.1)
        fault = OSError("connection refused\nIs the server running?")
        raise StoreUnavailableError("It is tried again with the next request") from fault


async def test_a_database_that_is_down_is_waited_for_and_then_told_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    helper = Agent(ScriptedModel(["Hello."]))
    app = WithoutDatabase(helper, db="postgresql://ada:hunter2@db.example:5432/agents")
    with pytest.raises(ConfigurationError) as told:
        await start_application(app, quiet_seconds=0.01)
    assert caplog.messages == ["waiting for the database db.example:5432/agents"]
    assert str(told.value) == (
        "the database db.example:5432/agents does not answer: connection refused Is the server "
        "running?; start it, or set another one with --db"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "99999"), "0<=x<=65535"),
        (("slow:helper", "--model", "openai:gpt-5"), "--model applies to the built-in agent"),
        (("--log-level", "loud"), "'loud' is not one of"),
    ],
)
async def test_a_wrong_option_is_a_usage_error(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, _, errors = await ran(tmp_path, "serve", *arguments)
    assert code == 2
    assert said in errors
    assert os.listdir(tmp_path) == []
