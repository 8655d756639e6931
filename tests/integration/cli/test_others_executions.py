"""``run`` and ``chat`` work on their own conversation, whatever else waits on the database."""

import asyncio
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.agent import Agent
from stepwell.app import AgentApp, RetentionPolicy
from stepwell.app.config import Config
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.principal import Principal
from stepwell.testing import ScriptedModel
from tests.integration.cli.command_line import CommandLine, write_shop
from tests.servers.postgres_server import database_of_its_own

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def cli_database(postgres_url: str) -> Iterator[str]:
    """The address of an empty database of a PostgreSQL server."""
    with database_of_its_own(postgres_url, "stepwell_cli") as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind in turn."""
    if request.param == "postgres":
        return request.getfixturevalue("cli_database")
    return f"sqlite:///{tmp_path}/stepwell.db"


def served(url: str) -> AgentApp:
    """The server of somebody else, which leaves the work to workers."""
    agents = {"echoes": Agent(ScriptedModel(["Mine."]))}
    app = AgentApp(agents, db=url, worker=False)
    return app.use_config(Config())


def sent_by_others(url: str, count: int = 5) -> list[str]:
    """Executions that wait for a worker."""

    async def send() -> list[str]:
        async with served(url).running() as app:
            ids: list[str] = []
            for number in range(count):
                who = Principal(user_id=f"user-{number}")
                sent = await app.services.intake.send_message(who, NewMessage(content="Hello"))
                assert sent.execution is not None
                ids.append(sent.execution.id)
            return ids

    return asyncio.run(send())


def statuses(url: str, ids: list[str]) -> list[tuple[ExecutionStatus, int]]:
    async def look() -> list[tuple[ExecutionStatus, int]]:
        async with served(url).running() as app:
            rows = [await app.services.store.read(lambda tx, id=id: tx.execution(id)) for id in ids]
            return [(row.status, row.attempt) for row in rows if row is not None]

    return asyncio.run(look())


def test_run_answers_its_own_question_and_nobody_elses(
    url: str, stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, f"others_run_{url[:4]}")
    others = sent_by_others(url)
    ran = stepwell("run", "--app", shop, "--agent", "echoes", "Hi", "--db", url)
    assert (ran.code, ran.out) == (0, "You said Hi\n"), ran.err
    assert statuses(url, others) == [(ExecutionStatus.PENDING, 0)] * len(others)


def test_chat_answers_its_own_conversations_and_nobody_elses(
    url: str, stepwell: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shop = write_shop(tmp_path, f"others_chat_{url[:4]}")
    others = sent_by_others(url)
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\n/new\nthree\n"))
    ran = stepwell("chat", shop, "--agent", "echoes", "--db", url)
    assert ran.out == "You said one\nYou said two\nYou said three\n", ran.err
    assert statuses(url, others) == [(ExecutionStatus.PENDING, 0)] * len(others)


def test_a_question_that_was_answered_goes_on_on_any_database(
    url: str, stepwell: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shop = write_shop(tmp_path, f"others_asks_{url[:4]}")
    asked = stepwell("run", "--app", shop, "--agent", "asks", "Go", "--json", "--db", url)
    session = asked.document["execution"]["session_id"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("7\n"))
    answered = stepwell("chat", shop, "--session", session, "--db", url)
    assert (answered.code, answered.out) == (0, "Done.\n"), answered.err


@pytest.mark.parametrize("command", ["run", "chat"])
def test_what_is_not_over_in_a_conversation_goes_on_first_and_that_is_said(
    command: str, stepwell: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = f"sqlite:///{tmp_path}/stepwell.db"
    shop = write_shop(tmp_path, f"others_first_{command}")
    [earlier] = sent_by_others(url, 1)
    session = stepwell("sessions", "--all-users", "--json").document[0]["id"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\n"))
    given = ["run", "-", "--app", shop] if command == "run" else ["chat", shop]
    ran = stepwell(*given, "--session", session)
    assert (ran.code, ran.out) == (0, "You said Hi\n")
    assert any(earlier in line for line in ran.err.splitlines())
    assert statuses(url, [earlier]) == [(ExecutionStatus.COMPLETED, 1)]
    again = stepwell("run", "--app", shop, "Bye", "--session", session)
    assert "first goes on" not in again.err


def test_old_things_are_not_cleared_away_by_somebody_who_asks_something(tmp_path: Path):
    app = AgentApp(
        {"echoes": Agent(ScriptedModel(["Mine."]))},
        db=f"sqlite:///{tmp_path}/stepwell.db",
        retention=RetentionPolicy(sessions_days=1),
    )

    async def beside() -> list[str]:
        async with app.running():
            return list(app.services.checks)

    assert asyncio.run(beside()) == ["worker here", "retention here"]
    app.work_only_on(set())
    assert asyncio.run(beside()) == ["worker here"]
