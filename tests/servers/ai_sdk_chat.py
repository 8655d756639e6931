"""A chat of the real AI SDK in a Node.js process, and the server that it talks to.

The client is ai_sdk_client.mjs; the server answers each post with the run of an agent.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from stepwell.agent import Agent
from stepwell.continuation import Cancellation
from stepwell.protocols.ai_sdk import (
    AI_SDK_HEADERS,
    ai_sdk_stream,
    response_message_id,
    state_from_ai_sdk,
)
from stepwell.protocols.client_stream import ClientInputError
from stepwell.state import AgentState
from tests.servers.node import PACKAGES, find_node, why_missing

CLIENT = Path(__file__).parent / "ai_sdk_client.mjs"
PROGRAM = PACKAGES / "ai" / "dist" / "index.mjs"
SECONDS = 30.0
LONGEST_LINE = 16 * 1024 * 1024


def missing() -> str | None:
    """Why the client can't run here, in words; None when it can."""
    return why_missing(PROGRAM)


class ChatServer:
    """Answers what `useChat` posts with runs of one agent, and keeps their states."""

    def __init__(self, agent: Agent, *, stores: bool = True) -> None:
        self.agent = agent
        self.cancellation = Cancellation()
        self.bodies: list[dict[str, Any]] = []
        self.states: list[AgentState] = []
        self.url = ""
        self._stores = stores

    @property
    def state(self) -> AgentState:
        """The state that the last run ended in."""
        return self.states[-1]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one connection."""
        try:
            await self._answered(json.loads(await _posted(reader)), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left, or never asked
        finally:
            writer.close()

    async def _answered(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.bodies.append(body)
        stored = self.states[-1] if self._stores and self.states else None
        try:
            state = state_from_ai_sdk(body, previous=stored)
        except ClientInputError as error:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
            writer.write(str(error).encode())
            return
        writer.write(_head("200 OK", AI_SDK_HEADERS))
        stream = ai_sdk_stream(
            self.agent,
            state,
            message_id=response_message_id(body),
            cancellation=self.cancellation,
            on_state=self.states.append,
        )
        try:
            async for piece in stream:
                writer.write(piece)
                await writer.drain()
        finally:
            await stream.aclose()


def _head(status: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{k}: {v}" for k, v in headers.items()), "connection: close"]
    return "\r\n".join([*lines, "", ""]).encode()


async def _posted(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(line for line in head.splitlines() if line.startswith("content-length:"))
    return await reader.readexactly(int(length.partition(":")[2]))


class ChatClient:
    """The Node.js process; each command is answered with what the chat then shows."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    async def do(self, **command: Any) -> Any:
        """One command; raises what went wrong inside the client."""
        try:
            async with asyncio.timeout(SECONDS):
                line = await asyncio.to_thread(self._asked, json.dumps(command).encode() + b"\n")
        except TimeoutError:
            self._process.kill()  # so that the thread that reads from it ends as well
            raise
        answer = json.loads(line or b'{"failed": "the client ended"}')
        if "failed" in answer:
            raise AssertionError(answer["failed"])
        return answer["done"]

    def _asked(self, line: bytes) -> bytes:
        reader, writer = self._process.stdout, self._process.stdin
        assert reader is not None
        assert writer is not None
        writer.write(line)
        writer.flush()
        return reader.readline()

    async def begin(self, server: ChatServer, **options: Any) -> None:
        """A new chat with that server."""
        await self.do(api=server.url, id="chat-1", **options)

    async def say(self, text: str, **more: Any) -> Any:
        """The user sends a message."""
        return await self.do(send={"text": text, **more})


@asynccontextmanager
async def serving(agent: Agent, *, stores: bool = True) -> AsyncIterator[ChatServer]:
    """A server on a free port of the loopback address."""
    server = ChatServer(agent, stores=stores)
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0, limit=LONGEST_LINE)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/api/chat"
    try:
        yield server
    finally:
        listening.close()


@contextmanager
def client_running() -> Iterator[ChatClient]:
    """The client, for as many chats as wanted; it ends when its standard input closes."""
    found = find_node()
    if found is None:
        raise RuntimeError(str(missing()))
    command = [found.node, str(CLIENT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield ChatClient(process)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()
