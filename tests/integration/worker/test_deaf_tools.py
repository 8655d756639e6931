"""Processes whose tools ignore their cancellation, exit or block end in time all the same."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stepwell.agent import Agent
from stepwell.app import AgentApp
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.principal import Principal
from stepwell.testing import ScriptedModel

DEAF = """
import asyncio, sys, threading, time
from pathlib import Path
from stepwell import Agent, ErrorPolicy
from stepwell.testing import ScriptedModel, call

def begin(name):
    with open("begun", "a") as file:
        file.write(name + "\\n")

async def swallows() -> str:
    begin("swallows")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def catches_all() -> str:
    begin("catches_all")
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass

async def shields() -> str:
    begin("shields")
    async def for_ever():
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
    while True:
        try:
            await asyncio.shield(asyncio.ensure_future(for_ever()))
        except asyncio.CancelledError:
            pass

def in_a_thread() -> str:
    begin("in_a_thread")
    time.sleep(3600)

async def in_the_executor() -> str:
    begin("in_the_executor")
    await asyncio.to_thread(time.sleep, 3600)

async def in_a_thread_of_its_own() -> str:
    threading.Thread(target=time.sleep, args=(3600,)).start()
    begin("in_a_thread_of_its_own")
    await asyncio.sleep(3600)

async def blocks() -> str:
    begin("blocks")
    time.sleep(3600)

async def exits() -> str:
    sys.exit(3)

def interrupts() -> str:
    raise KeyboardInterrupt

async def interrupts_soon() -> str:
    await asyncio.sleep(0)
    raise KeyboardInterrupt

TOOLS = [swallows, catches_all, shields, in_a_thread, in_the_executor, in_a_thread_of_its_own,
         blocks, exits, interrupts, interrupts_soon]

def script(request):
    last = request.messages[-1]
    if last.tool_result is not None:
        return f"Still here: {last.text}"
    return call(last.text) if last.text in {tool.__name__ for tool in TOOLS} else "Hello."

helper = Agent(ScriptedModel(script), tools=TOOLS, cancel_grace=1.0,
               error_policy=ErrorPolicy.retry_tool_errors(3))
"""
SETTINGS = "[sessions]\nshutdown_seconds = 8\nconcurrency = 10\n"
SHUTDOWN = 8.0
SLACK = 30.0
"""For a machine that is busy; a process that waits for a tool would take an hour."""


class Started:
    """A process of Stepwell, and a folder that its tools write to."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self.folder = folder

    async def begun(self, *names: str) -> None:
        async with asyncio.timeout(60):
            while sorted(self._begun()) != sorted(names):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.05)

    def _begun(self) -> list[str]:
        path = self.folder / "begun"
        return path.read_text().split() if path.exists() else []

    async def signalled(self, number: signal.Signals) -> tuple[int, float, str]:
        """Its exit code, how long it took, and what it wrote to stderr."""
        started = time.monotonic()  # noqa: TID251 - the real time of another process
        self.process.send_signal(number)
        _, said = await asyncio.wait_for(self.process.communicate(), SHUTDOWN + SLACK)
        assert self.process.returncode is not None
        return self.process.returncode, time.monotonic() - started, said.decode()  # noqa: TID251


class Served(Started):
    """A server with its worker."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, url: str) -> None:
        super().__init__(process, folder)
        self.client = httpx2.AsyncClient(base_url=url, timeout=60)

    async def send(self, text: str) -> str:
        answer = await self.client.post("/agent/messages", json={"content": text})
        return answer.json()["execution"]["id"]

    async def ended(self, execution_id: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                found = (await self.client.get(f"/agent/executions/{execution_id}")).json()
                if found["status"] not in ("pending", "running"):
                    return found
                await asyncio.sleep(0.05)


@asynccontextmanager
async def started(folder: Path, *arguments: str) -> AsyncIterator[tuple[Started, str]]:
    """The command with the agent above, and its first line."""
    (folder / "deaf.py").write_text(DEAF)
    (folder / "stepwell.toml").write_text(SETTINGS)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stepwell", *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},  # noqa: TID251 - of the test's own process
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        yield Started(process, folder), line.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    async with started(folder, "serve", "deaf:helper", "--port", "0") as (one, line):
        address = re.search(r"http://\S+", line)
        assert address is not None
        server = Served(one.process, folder, address.group())
        async with server.client:
            yield server


DEAF_TOOLS = (*("swallows", "catches_all", "shields", "in_a_thread") * 2, "swallows", "shields")
"""Ten: as many as a worker runs at the same time."""


async def test_cancelled_executions_free_their_slots_although_their_tools_go_on(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as one:
        ids = [await one.send(name) for name in DEAF_TOOLS]
        await one.begun(*DEAF_TOOLS)
        waiting = await one.send("Hello")
        for id in ids:
            await one.client.post(f"/agent/executions/{id}/cancel", json={})
        rows = [await one.ended(id) for id in ids]
        hello = await one.ended(waiting)
        _, _, said = await one.signalled(signal.SIGTERM)

    assert [row["status"] for row in rows] == ["cancelled"] * len(ids)
    assert hello["status"] == "completed"
    assert "tool swallows did not end within 1 s" in said
    assert "Task was destroyed" not in said


@pytest.mark.parametrize(
    "tools",
    [DEAF_TOOLS, ("in_the_executor", "in_a_thread_of_its_own", "swallows")],
    ids=["deaf", "threads"],
)
async def test_a_process_ends_in_time_whatever_its_tools_do(
    tools: tuple[str, ...], tmp_path: Path
) -> None:
    async with served(tmp_path) as one:
        for name in tools:
            await one.send(name)
        await one.begun(*tools)
        code, seconds, said = await one.signalled(signal.SIGTERM)

    assert code == 0
    assert seconds < SHUTDOWN + SLACK / 2
    assert "Task was destroyed" not in said
    assert "Traceback" not in said
    print(f"ended after {seconds:.1f} s of {SHUTDOWN:g}")


async def test_a_worker_that_ten_deaf_tools_fill_ends_in_time(url: str, tmp_path: Path) -> None:
    who, agents = Principal(user_id="ada"), {"helper": Agent(ScriptedModel([]))}
    async with (
        started(tmp_path, "worker", "deaf:helper", "--db", url) as (one, line),
        AgentApp(agents, db=url, worker=False).running() as app,
    ):
        assert line.startswith("Stepwell works on helper")
        sent = [
            await app.services.intake.send_message(who, NewMessage(content=name))
            for name in DEAF_TOOLS
        ]
        await one.begun(*DEAF_TOOLS)
        # No slot is left for it.
        waiting = await app.services.intake.send_message(who, NewMessage(content="swallows"))
        code, seconds, said = await one.signalled(signal.SIGTERM)
        rows = [
            await app.services.store.read(lambda tx, id=it.execution.id: tx.execution(id))
            for it in (*sent, waiting)
            if it.execution is not None
        ]
        await one.begun(*DEAF_TOOLS)

    assert code == 0, said
    assert seconds < SHUTDOWN + SLACK / 2
    assert "Task was destroyed" not in said
    assert "Traceback" not in said
    assert {row.status for row in rows if row is not None} == {ExecutionStatus.PENDING}


async def test_a_process_whose_event_loop_is_blocked_is_ended(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.send("blocks")
        await one.begun("blocks")
        code, _, said = await one.signalled(signal.SIGTERM)

    assert code == 1
    assert "did not end within" in said


async def test_a_tool_that_exits_or_interrupts_does_not_end_the_process(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        rows = [
            await one.ended(await one.send(name))
            for name in ("exits", "interrupts", "interrupts_soon")
        ]
        hello = await one.ended(await one.send("Hello"))
        code, _, _ = await one.signalled(signal.SIGINT)

    assert [row["status"] for row in rows] == ["completed"] * 3
    assert hello["status"] == "completed"
    assert code == 0
