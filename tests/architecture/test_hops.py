"""How far it is from one place to another: the files and frames on the real call path.

A path is what stands on the stack where it ends, tasks that are awaited included: what a reader
has to open to follow a call from one end to the other. Helpers that return on the way (ids, clocks,
codecs) are not on it.
"""

import asyncio
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import stepwell
from stepwell import Agent, tool
from stepwell.events import AgentEvent
from stepwell.journal.entry import Entry
from stepwell.journal.projector import Projector
from stepwell.testing import ScriptedModel, call
from tests.integration.server.serving import listening, serving

SOURCE = Path(stepwell.__file__).parent


def file_of(code: CodeType) -> str | None:
    """The file below ``src/stepwell``; None for code of others."""
    path = Path(code.co_filename)
    return str(path.relative_to(SOURCE)) if path.is_relative_to(SOURCE) else None


def frames_of(frame: FrameType | None) -> Iterator[CodeType]:
    """What stands on the stack of this task, from here up to the event loop."""
    while frame is not None and "asyncio" not in Path(frame.f_code.co_filename).parts:
        yield frame.f_code
        frame = frame.f_back


def awaited_by(task: "asyncio.Task[Any]") -> Iterator[CodeType]:
    """The coroutines of a task that waits, from its first to what it awaits."""
    awaited: Any = task.get_coro()
    while (code := getattr(awaited, "cr_code", None)) is not None:
        yield code
        awaited = awaited.cr_await


def test_from_the_loop_to_the_body_of_a_tool() -> None:
    paths: list[list[CodeType]] = []

    @tool
    async def look() -> None:
        """Look at the stack."""
        around = awaited_by(run)
        own = list(frames_of(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]
        paths.append([*around, *reversed(own)])

    async def run_step() -> None:
        agent = Agent(ScriptedModel([call("look")]), tools=[look])
        await agent.next_step(agent.new_state("Look."))

    async def main() -> None:
        nonlocal run
        run = asyncio.create_task(run_step())
        await run

    run: asyncio.Task[None]
    asyncio.run(main())

    [path] = paths
    names = [(file_of(code), code.co_name) for code in path]
    step = names[names.index(("loop/loop.py", "next_step")) + 1 :]
    assert step[0][0] == "loop/loop.py"
    assert len(step) <= 8, step
    assert len({file for file, _ in step}) <= 4, step


def files_below(frame: FrameType | None, ends: tuple[str, ...]) -> set[str]:
    """The files on the stack from here up to the last that one of ``ends`` begins; empty without
    such a file."""
    files = [file for code in frames_of(frame) if (file := file_of(code)) is not None]
    last = max((at for at, file in enumerate(files) if file.startswith(ends)), default=-1)
    return set(files[: last + 1])


class WatchedConnection(sqlite3.Connection):
    """Notes for each kind of statement the files on the longest way to it from one of ``ends``."""

    ends: tuple[str, ...]
    paths: dict[str, set[str]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.set_trace_callback(self.note)

    def note(self, statement: str) -> None:
        """Called where the statement is executed."""
        verb, _, rest = statement.partition(" ")
        table = re.search(r"(?:INTO|FROM) (\w+)", rest)
        found = files_below(sys._getframe(1), self.ends)  # pyright: ignore[reportPrivateUsage]
        words = f"{verb} {table and table[1]}"
        if len(found) > len(self.paths.get(words, ())):
            self.paths[words] = found


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> type[WatchedConnection]:
    monkeypatch.setattr(sqlite3, "Connection", WatchedConnection)
    monkeypatch.setattr(WatchedConnection, "paths", {}, raising=False)
    monkeypatch.setattr(WatchedConnection, "ends", (), raising=False)
    return WatchedConnection


async def test_from_a_sent_message_to_its_rows(
    tmp_path: Path, statements: type[WatchedConnection]
) -> None:
    statements.ends = ("server/routes/messages.py",)
    async with serving(tmp_path) as served, served.client() as client:
        answer = await client.post("/agent/messages", json={"content": "hello"})
        assert answer.status_code == 202

    rows = {words: files for words, files in statements.paths.items() if "INSERT" in words}
    assert len(rows) >= 3
    for words, files in rows.items():
        assert len(files) <= 8, (words, sorted(files))


async def test_from_an_event_of_a_run_to_a_client(
    tmp_path: Path, statements: type[WatchedConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By way of the journal: into the run's buffer, its row, the feed, and out of the server."""
    statements.ends = ("sessions/attempt/boundaries.py", "server/live/session_feed.py")
    heard, sent = set[str](), set[str]()
    project = Projector.entries

    def note_event(projector: Projector, event: AgentEvent) -> tuple[Entry, ...]:
        heard.update(files_below(sys._getframe(), ("events/emitter.py",)))  # pyright: ignore[reportPrivateUsage]
        return project(projector, event)

    monkeypatch.setattr(Projector, "entries", note_event)
    async with serving(tmp_path) as served:

        async def app(scope: Any, receive: Any, send: Any) -> None:
            async def note_sent(message: Any) -> None:
                if message["type"] == "http.response.body":
                    sent.update(files_below(sys._getframe(), ("server/live/",)))  # pyright: ignore[reportPrivateUsage]
                await send(message)

            await served.app(scope, receive, note_sent)

        async with listening(served, app=app) as address, address.client() as client:
            sent_message = (await client.post("/agent/messages", json={"content": "add"})).json()
            path = f"/agent/sessions/{sent_message['session']['id']}/events"
            until = {"execution": sent_message["execution"]["id"]}
            events = await client.get(path, params=until, timeout=60)
            assert "agent.status" in events.text

    assert heard
    assert sent
    stored, read = (statements.paths[f"{verb} agent_journal"] for verb in ("INSERT", "SELECT"))
    way = {"journal/projector.py"} | heard | stored | read | sent
    assert len(way) <= 12, sorted(way)
