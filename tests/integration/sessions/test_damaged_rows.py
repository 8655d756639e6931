"""A row that does not fit its record is never written over: what is left of it can be mended."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.sessions.intake.intake import Sent
from stepwell.sessions.records import SessionStatus
from stepwell.stores.errors import DamagedDataError
from stepwell.testing import MockTool, ScriptedModel, call
from tests.integration.sessions.databases import rows_as_text
from tests.integration.sessions.front_desk import FrontDesk, desk_at
from tests.integration.stores.databases import run_sql

BREAK_SESSION = "UPDATE agent_sessions SET status = 'ajar'"
BREAK_EXECUTION = "UPDATE agent_executions SET input = '[1]'"


def id_of(sent: Sent) -> str:
    assert sent.execution is not None
    return sent.execution.id


SAVES: dict[str, tuple[str, Callable[[FrontDesk, Sent], Awaitable[Any]]]] = {
    "rename": (
        BREAK_SESSION,
        lambda desk, sent: desk.lifecycle.change_session(sent.session.id, title="New"),
    ),
    "close": (
        BREAK_SESSION,
        lambda desk, sent: desk.lifecycle.change_session(
            sent.session.id, status=SessionStatus.CLOSED
        ),
    ),
    "send": (BREAK_SESSION, lambda desk, sent: desk.send("more", sent.session.id)),
    "claim": (BREAK_EXECUTION, lambda desk, sent: desk.claim(id_of(sent))),
    "cancel": (BREAK_EXECUTION, lambda desk, sent: desk.lifecycle.cancel(id_of(sent))),
    "send behind it": (BREAK_EXECUTION, lambda desk, sent: desk.send("more", sent.session.id)),
}


@pytest.mark.parametrize("what", SAVES)
async def test_b117_nothing_is_saved_over_a_damaged_row(tmp_path: Path, what: str) -> None:
    breaking, save = SAVES[what]
    async with desk_at(tmp_path / "a.db") as desk:
        sent = await desk.send("add")
        run_sql(f"sqlite:///{tmp_path / 'a.db'}", breaking)
        before = rows_as_text(tmp_path / "a.db")

        with pytest.raises(DamagedDataError, match=r"does not fit.*restore it from a backup"):
            await save(desk, sent)

        assert rows_as_text(tmp_path / "a.db") == before


async def test_b117_a_worker_saves_nothing_over_a_row_that_was_damaged_while_it_ran(
    tmp_path: Path,
) -> None:
    found: list[str] = []

    def damage(**_: Any) -> str:
        run_sql(f"sqlite:///{tmp_path / 'a.db'}", BREAK_EXECUTION)
        found.extend(rows_as_text(tmp_path / "a.db"))
        return "done"

    agent = Agent(ScriptedModel([call("damage"), "Done."]), tools=[MockTool("damage", damage)])
    async with desk_at(tmp_path / "a.db", {"careless": agent}) as desk:
        sent = await desk.send("go")
        with pytest.raises(DamagedDataError, match=id_of(sent)):
            await desk.run(id_of(sent))

    assert any(line.startswith("agent_executions") for line in found)
    assert rows_as_text(tmp_path / "a.db") == found
