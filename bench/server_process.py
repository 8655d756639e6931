"""Processes of the server bench: the app server, a worker, and a bare FastAPI route as the floor.

Each answers questions of the bench over a pipe (its CPU time, what SQLite was asked for, words that
its model streamed) and ends when the pipe is closed.
"""

import asyncio
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from msgspec import Struct

from bench.server_app import make_app
from bench.statement_count import Counts, StatementCount
from stepwell import Agent, FinishReason, ModelRequest, ModelResponse, TextDelta, Usage, tool
from stepwell.models import ResponseEnd, StreamPart
from stepwell.testing import ScriptedModel, call

WORDS_PER_SECOND = 30.0
_SPAWN = multiprocessing.get_context("spawn")
_START_SECONDS = 120.0


class Role(Struct, frozen=True, kw_only=True):
    """What a process is to do."""

    url: str
    streams_seconds: float = 0.0
    """How long each answer streams; 0 for one that comes at once."""
    tool_steps: int = 0
    """How many tool calls come before an answer, in an agent that does not stream."""
    works: bool = False
    """Whether a worker runs in it."""
    counts: bool = False
    """Whether it counts statements, which costs time."""


class StreamingModel:
    """Streams words at a steady rate, as a provider does."""

    name = "streaming"

    def __init__(self, seconds: float) -> None:
        self._words = int(seconds * WORDS_PER_SECOND)
        self.streamed = 0

    async def respond(self, _: ModelRequest) -> ModelResponse:
        """The whole answer at once."""
        return self._response("word " * self._words)

    async def stream(self, _: ModelRequest) -> AsyncIterator[StreamPart]:
        """The answer, word by word; each says when it was made."""
        began = time.monotonic()
        said: list[str] = []
        for number in range(self._words):
            due = began + number / WORDS_PER_SECOND
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.streamed += 1
            said.append(f"word@{time.monotonic():.3f} ")
            yield TextDelta(said[-1])
        yield ResponseEnd(self._response("".join(said)))

    def _response(self, text: str) -> ModelResponse:
        usage = Usage(input_tokens=10, output_tokens=self._words)
        return ModelResponse(text=text, finish_reason=FinishReason.STOP, usage=usage)


def yes_agent() -> Agent:
    """An agent that answers in one step."""
    return Agent(ScriptedModel(lambda _: "Yes."), system_prompt="You say yes.")


@tool
async def look_up(number: int) -> str:
    """Look something up: 1,000 characters."""
    return f"{number * 7919 % 1_000_003} " * 125


def _calling_agent(calls: int) -> Agent:
    """An agent that calls a tool so many times, one call a step, and then answers."""

    def turn(request: ModelRequest) -> Any:
        done = sum(1 for message in request.messages if message.is_tool())
        return call("look_up", id=f"c{done}", number=done) if done < calls else "All found."

    return Agent(ScriptedModel(turn), tools=[look_up], max_steps=calls + 2, timeout=None)


class _Answers:
    """Answers the bench from a thread of its own, so that a busy loop does not delay it."""

    def __init__(self, role: Role, pipe: Connection) -> None:
        self._pipe = pipe
        self._count = StatementCount() if role.counts else None
        self._model = StreamingModel(role.streams_seconds)
        if self._count is not None:
            self._count.install()
        if role.streams_seconds:
            self.agent = Agent(self._model, max_tokens=None, timeout=None)
        elif role.tool_steps:
            self.agent = _calling_agent(role.tool_steps)
        else:
            self.agent = yes_agent()

    def start(self, ready: Any) -> None:
        """Tell that the process is ready, and answer from now on."""
        self._pipe.send(ready)
        threading.Thread(target=self._run, name="bench-answers", daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                match self._pipe.recv():
                    case "cpu":
                        self._pipe.send(time.process_time())
                    case "counts" if self._count is not None:
                        self._pipe.send(self._count.counts())
                    case "words":
                        self._pipe.send(self._model.streamed)
                    case question:
                        raise AssertionError(f"no answer to {question!r}")
        except (EOFError, OSError):
            os._exit(0)


def serve(role: Role, pipe: Connection) -> None:
    """The app server, as ``stepwell serve`` runs it."""
    asyncio.run(_serve(role, pipe))


async def _serve(role: Role, pipe: Connection) -> None:
    from stepwell.cli.http_server import AppServer, address_of

    answers = _Answers(role, pipe)
    app = make_app(answers.agent, role.url, worker=role.works)
    async with app.running():
        server = AppServer(app, "127.0.0.1", 0)
        serving = asyncio.create_task(server.serve())
        answers.start(int((await address_of(server)).rsplit(":", 1)[1]))
        await serving


def work(role: Role, pipe: Connection) -> None:
    """A worker, as ``stepwell worker`` runs it."""

    async def main() -> None:
        answers = _Answers(role, pipe)
        async with make_app(answers.agent, role.url, worker=True).running():
            answers.start(None)
            await asyncio.Event().wait()

    asyncio.run(main())


def serve_bare(role: Role, pipe: Connection) -> None:
    """The floor: a FastAPI route that inserts one row in one transaction."""
    asyncio.run(_serve_bare(role, pipe))


async def _serve_bare(role: Role, pipe: Connection) -> None:
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    class NewMessage(BaseModel):
        content: str

    api = FastAPI()
    insert = await (_postgres_insert(role.url) if "postgres" in role.url else _insert(role.url))

    @api.post("/sessions/{session_id}/messages", status_code=202)
    async def send(session_id: str, message: NewMessage) -> dict[str, Any]:
        id = await insert(session_id, message.content)
        return {"id": id, "session_id": session_id, "content": message.content}

    config = uvicorn.Config(api, port=0, host="127.0.0.1", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    _Answers(role, pipe).start(port)
    await serving


Insert = Callable[[str, str], Awaitable[int]]
_TABLE = "CREATE TABLE bare_messages (id {key}, session_id TEXT, content TEXT)"


async def _insert(url: str) -> Insert:
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    for command in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"):
        connection.execute(command)
    connection.execute(_TABLE.format(key="INTEGER PRIMARY KEY"))

    async def insert(session_id: str, content: str) -> int:
        statement = "INSERT INTO bare_messages (session_id, content) VALUES (?, ?) RETURNING id"
        return connection.execute(statement, (session_id, content)).fetchall()[0][0]

    return insert


async def _postgres_insert(url: str) -> Insert:
    import psycopg

    idle: asyncio.LifoQueue[psycopg.AsyncConnection] = asyncio.LifoQueue()
    for _ in range(4):
        idle.put_nowait(await psycopg.AsyncConnection.connect(url))
    connection = await idle.get()
    await connection.execute(_TABLE.format(key="bigserial PRIMARY KEY"))
    await connection.commit()
    idle.put_nowait(connection)

    async def insert(session_id: str, content: str) -> int:
        statement = "INSERT INTO bare_messages (session_id, content) VALUES (%s, %s) RETURNING id"
        connection = await idle.get()
        try:
            rows = await (await connection.execute(statement, (session_id, content))).fetchall()
            await connection.commit()
        finally:
            idle.put_nowait(connection)
        return rows[0][0]

    return insert


class BenchProcess:
    """A started process, as the bench sees it."""

    def __init__(self, ready: Any, pid: int, pipe: Connection) -> None:
        self.port: int = ready or 0
        self.pid = pid
        self._pipe = pipe

    @property
    def cpu(self) -> float:
        """Its CPU seconds so far."""
        return self._ask("cpu")

    @property
    def counts(self) -> Counts:
        """What it has asked SQLite for so far."""
        return self._ask("counts")

    @property
    def words(self) -> int:
        """What its model has streamed so far."""
        return self._ask("words")

    def _ask(self, question: str) -> Any:
        self._pipe.send(question)
        return self._pipe.recv()


@contextmanager
def process(main: Callable[[Role, Connection], None], role: Role) -> Iterator[BenchProcess]:
    """A process for the length of a block."""
    here, there = _SPAWN.Pipe()
    started = _SPAWN.Process(target=_quietly, args=(main, role, there), daemon=True)
    started.start()
    there.close()
    try:
        if not here.poll(_START_SECONDS):
            raise AssertionError(f"{main.__name__} did not start in {_START_SECONDS:g} s")
        yield BenchProcess(here.recv(), started.pid or 0, here)
    finally:
        here.close()
        started.join(1)
        started.kill()
        started.join()


def _quietly(main: Callable[[Role, Connection], None], role: Role, pipe: Connection) -> None:
    logging.disable(logging.ERROR)
    main(role, pipe)
