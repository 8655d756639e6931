"""What the PostgreSQL server writes into its log while sessions live: no errors of our making."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from stepwell.ids import new_id
from tests.integration.sessions.databases import migrated
from tests.integration.sessions.front_desk import ADA, FrontDesk, desk_at
from tests.integration.sessions.tried import QUICK, WRITES, Tried, taken_over
from tests.integration.sessions.world import world
from tests.servers.postgres_server import (
    PostgresServer,
    database_of_its_own,
    postgres_programs,
    postgres_running,
)


@pytest.fixture(scope="module")
def logging_server() -> Iterator[PostgresServer]:
    """A server of its own that keeps a log."""
    if (programs := postgres_programs()) is None:
        pytest.skip("no PostgreSQL server to start")
    options = {"logging_collector": "on", "log_filename": "server.log", "log_line_prefix": "%d "}
    with postgres_running(programs, **options) as server:
        yield server


class LoggedDatabase(NamedTuple):
    """A database, and where its server logs."""

    name: str
    url: str
    log: Path

    def errors(self) -> list[str]:
        """The errors of this database, each with the statement that led to it."""
        lines = [f"{line}\n{detail}\n{why}" for line, detail, why in _threes(self.log)]
        return [line for line in lines if line.startswith((f"{self.name} ERROR", "FATAL"))]


def _threes(log: Path) -> Iterator[tuple[str, str, str]]:
    lines = log.read_text().splitlines()
    return zip(lines, [*lines[1:], ""], [*lines[2:], "", ""], strict=True)


@pytest.fixture
def logged(logging_server: PostgresServer) -> Iterator[LoggedDatabase]:
    name = f"logged_{new_id()}"
    with database_of_its_own(logging_server.url, name) as url:
        asyncio.run(migrated(url))
        yield LoggedDatabase(name, url, logging_server.log_file)


@pytest.fixture
async def desk(logged: LoggedDatabase) -> AsyncIterator[FrontDesk]:
    async with desk_at(logged.url) as desk:
        yield desk


async def test_sends_that_are_repeated_log_no_error(
    desk: FrontDesk, logged: LoggedDatabase
) -> None:
    first = await desk.send("hello", idempotency_key="one")
    again = await desk.send("hello", idempotency_key="one")
    assert again.repeated
    assert again.message.id == first.message.id
    both = await asyncio.gather(*(desk.send("hi", idempotency_key="two") for _ in range(10)))
    assert len({sent.message.id for sent in both}) == 1
    assert logged.errors() == []


async def test_approvals_questions_forks_and_cancellations_log_no_error(
    desk: FrontDesk, logged: LoggedDatabase
) -> None:
    sent = await desk.sent_and_run("add mail ask both add")
    assert sent.execution is not None
    id = sent.execution.id
    answers = {"send_mail": True}
    while (await desk.execution(id)).status == "paused":
        for asked in (await desk.execution(id)).pending:
            answer = answers.get(asked["tool_name"], "Rome")
            await desk.lifecycle.answer(id, asked["question_id"], answer)
        await desk.run(id)
    assert (await desk.execution(id)).status == "completed"
    fork = await desk.lifecycle.fork(ADA, id, step_number=2, message="add")
    assert fork.execution is not None
    await desk.run(fork.execution.id)
    waits = await desk.sent_and_run("ask")
    assert waits.execution is not None
    await desk.lifecycle.cancel(waits.execution.id)
    await desk.lifecycle.cancel(waits.execution.id)
    assert logged.errors() == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_takeovers_log_no_error(tmp_path: Path, logged: LoggedDatabase, after: bool) -> None:
    tried = Tried()
    async with world(tmp_path, tried.agent, settings=QUICK, url=logged.url) as here:
        id = await here.send("go")
        crashes = [(at, after) for at in range(1, len(WRITES) + 1)]
        assert await taken_over(here, id, crashes) >= 3
        assert (await here.execution(id)).status == "completed"
    assert logged.errors() == []
