"""An agent behind HTTP for AG-UI clients, made of the standard library, and the client itself.

The server keeps the state of each thread, as an application would, and what it sent.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from stepwell import Agent, AgentState, Cancellation
from stepwell.protocols.ag_ui import ag_ui_events, encode_sse, state_from_ag_ui
from tests.servers.node import PACKAGES, Node, find_node, why_missing

HERE = Path(__file__).parent
CLIENT_PACKAGE = PACKAGES / "@ag-ui" / "client" / "dist" / "index.mjs"
CLIENT = HERE / "ag_ui_client.mjs"
CLIENT_SECONDS = 30.0
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"connection: close\r\n\r\n"
)


@cache
def missing() -> str | None:
    """Why the AG-UI client can't run here, in words; None when it can."""
    return why_missing(CLIENT_PACKAGE)


class AgUiServer:
    """Answers every POST with a run of the agent."""

    def __init__(self, agent: Agent, *, keeps_states: bool = True) -> None:
        self.reached: AgentState | None = None
        """The state after the newest step; in the end the result of the last run."""
        self.sent: list[list[dict[str, Any]]] = []
        self.left_early = 0
        self.cancellation = Cancellation()
        self.url = ""
        self._agent = agent
        self._keeps_states = keeps_states
        self._threads: dict[str, AgentState] = {}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one run."""
        with contextlib.suppress(OSError):
            await self._answer(reader, writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        previous = self._threads.get(body["threadId"]) if self._keeps_states else None
        state = state_from_ag_ui(body, previous=previous, may_grant=True, may_edit=True)
        writer.write(HEAD)
        sending = asyncio.create_task(self._send(state, body, writer))
        gone = asyncio.create_task(reader.read())
        await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        self.left_early += not sending.done()
        for task in (sending, gone):
            task.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)

    async def _send(
        self, state: AgentState, body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        sent: list[dict[str, Any]] = []
        self.sent.append(sent)
        events = ag_ui_events(
            self._agent,
            state,
            thread_id=body["threadId"],
            run_id=body["runId"],
            cancellation=self.cancellation,
            on_state=lambda reached: self._keep(body["threadId"], reached),
        )
        async with contextlib.aclosing(events):
            async for event in events:
                sent.append(event)
                writer.write(encode_sse(event))
                await writer.drain()

    def _keep(self, thread_id: str, reached: AgentState) -> None:
        self.reached = self._threads[thread_id] = reached


@cache
def _node() -> Node:
    found = find_node()
    if found is None:
        raise RuntimeError(str(missing()))
    return found


@asynccontextmanager
async def serving(server: AgUiServer) -> AsyncIterator[AgUiServer]:
    """The server on a free loopback port while the block lasts."""
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    async with listening:
        yield server


async def run_client(
    url: str, *runs: dict[str, Any], messages: Sequence[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """What the real client made of each run; a warning of the client is a failure."""
    found = _node()
    plan = {"url": url, "threadId": "thread", "messages": list(messages), "runs": list(runs)}
    process = await asyncio.create_subprocess_exec(
        found.node,
        "--require",
        str(HERE / "end_with_parent.cjs"),
        str(CLIENT),
        json.dumps(plan),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(CLIENT_SECONDS):
            printed = await process.stdout.read()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if not printed:
        assert process.stderr is not None
        raise AssertionError((await process.stderr.read()).decode())
    told = json.loads(printed)
    assert told["warnings"] == []
    return told["runs"]
