"""How far it is from one place to another: the files and frames on the real call path.

A path is what stands on the stack where it ends, tasks that are awaited included: what a reader
has to open to follow a call from one end to the other. Helpers that return on the way (ids, clocks,
codecs) are not on it.
"""

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import stepwell
from stepwell import Agent, tool
from stepwell.testing import ScriptedModel, call
from tests.integration.server.serving import serving

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


class WatchedConnection(sqlite3.Connection):
    """Notes for each statement which files are on the way from a route to it."""

    paths: dict[str, set[str]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.set_trace_callback(self.note)

    def note(self, statement: str) -> None:
        """Called where the statement is executed."""
        codes = frames_of(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        files = [file for code in codes if (file := file_of(code)) is not None]
        if "server/routes/messages.py" in files:
            below = takewhile(lambda file: not file.startswith("server/"), files)
            self.paths[" ".join(statement.split()[:3])] = {*below, "server/routes/messages.py"}


async def test_from_a_sent_message_to_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "Connection", WatchedConnection)
    monkeypatch.setattr(WatchedConnection, "paths", {}, raising=False)
    async with serving(tmp_path) as served, served.client() as client:
        answer = await client.post("/agent/messages", json={"content": "hello"})
        assert answer.status_code == 202

    rows = {words: files for words, files in WatchedConnection.paths.items() if "INSERT" in words}
    assert len(rows) >= 3
    for words, files in rows.items():
        assert len(files) <= 9, (words, sorted(files))
