"""A person reads the tables: every query of the documentation runs and finds something, and the
database itself refuses what does not fit."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.settings import SessionSettings
from stepwell.testing.stores_rows import a_message, a_session, an_entry, an_execution, make, write
from tests.integration.sessions.front_desk import FrontDesk
from tests.integration.sessions.test_subagents import nested
from tests.integration.stores.databases import run_sql

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "database.md"
QUERIES = re.findall(r"```(sql|sqlite|postgresql)\n(.*?)```", PAGE.read_text(), re.DOTALL)


def _fetch(url: str, query: str) -> list[Any]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return file.execute(query).fetchall()
    with psycopg.connect(url) as server:
        return server.execute(query).fetchall()  # type: ignore[arg-type]


async def test_every_query_of_the_page_finds_something(database: str, store: Store) -> None:
    desk = FrontDesk(store, AgentDirectory({"helper": nested()}), SessionSettings())
    await desk.sent_and_run("go")
    kind = "sqlite" if database.startswith("sqlite") else "postgresql"
    fitting = [query for dialect, query in QUERIES if dialect in ("sql", kind)]
    assert len(fitting) == 6
    for query in fitting:
        assert _fetch(database, query), query


_REFUSED = {
    "status": "UPDATE agent_sessions SET status = 'ajar'",
    "when_busy": "UPDATE agent_sessions SET when_busy = 'wait'",
    "role": "UPDATE agent_session_messages SET role = 'robot'",
    "execution status": "UPDATE agent_executions SET status = 'sleeping'",
    "session of a message": "UPDATE agent_session_messages SET session_id = '{no}'",
    "execution of a message": "UPDATE agent_session_messages SET agent_execution_id = '{no}'",
    "parent": "UPDATE agent_executions SET parent_execution_id = '{no}'",
    "execution of an entry": "UPDATE agent_journal SET execution_id = '{no}'",
}


@pytest.mark.parametrize("what", _REFUSED)
async def test_the_database_refuses_what_does_not_fit(
    database: str, store: Store, what: str
) -> None:
    session = a_session()
    await make(store, session, an_execution())

    async def work(tx: Transaction) -> None:
        await tx.add_messages(session, [a_message("m", agent_execution_id="x")])
        await tx.append(session, [an_entry(execution_id="x")])

    await write(store, work)
    change = _REFUSED[what].format(no="00000000-0000-0000-0000-00000000000f")
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        _change(database, change)


def _change(url: str, statement: str) -> None:
    if not url.startswith("sqlite"):
        run_sql(url, statement)
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        file.execute("PRAGMA foreign_keys = ON")
        file.execute(statement)
