"""What a worker does all the time finds its rows by the index that was made for it, on a server
that has no statistics yet as well."""

import re
import sqlite3
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from stepwell.sessions.ports import ExecutionFilter, Store
from stepwell.sessions.records import ExecutionStatus
from stepwell.stores import execution_rows, session_rows
from stepwell.stores.codec import stored_id, written
from stepwell.stores.lane import Statements
from stepwell.stores.listing import executions_query
from stepwell.testing.stores_rows import TENANT, a_session, an_execution, at, make

_KEY = "(agent_executions_pkey|sqlite_autoindex_agent_executions_1)"
_HEAD = "agent_executions_unfinished"
_STATEMENTS = {
    "claim": (execution_rows._CLAIM, (_KEY, _HEAD)),
    "claimable": (execution_rows._CLAIMABLE, ("agent_executions_claimable", _HEAD)),
    "renew": (execution_rows._RENEW, (_KEY, "agent_session_messages_of_user")),
    "steering": (session_rows._SPOKEN_TO, ("agent_session_messages_of_user",)),
}
_VALUES = {
    "row_key": "x1",
    "execution": stored_id("x1"),
    "own_attempt": 1,
    "now": at(0),
    "lease_until": at(9),
    "most": 9,
    "worker_id": "w",
    "started_at": at(0),
    "updated_at": at(0),
}


def plan_of(url: str, statement: Any, given: Mapping[str, Any] = _VALUES) -> str:
    is_file = url.startswith("sqlite")
    statements = Statements(SQLiteDialect_pysqlite() if is_file else PGDialect_psycopg())
    prepared = statements.written(statement)
    values = prepared.values(
        {name: written(value, statements.dialect) for name, value in given.items()}
    )
    if is_file:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        rows = connection.execute(f"EXPLAIN QUERY PLAN {prepared.text}", values).fetchall()
        connection.close()
        return "\n".join(row[3] for row in rows)
    with psycopg.connect(url) as server:
        plan = server.execute(f"EXPLAIN {prepared.text}", values)  # type: ignore[arg-type]
        return "\n".join(row[0] for row in plan)


@pytest.mark.parametrize("name", _STATEMENTS)
async def test_a_worker_finds_its_rows_by_their_index(
    store: Store, database: str, name: str
) -> None:
    statement, expected = _STATEMENTS[name]
    await make(
        store,
        a_session(),
        *(an_execution(f"x{n}", status=ExecutionStatus.COMPLETED) for n in range(300)),
        *(an_execution(f"p{n}", created_at=at(n)) for n in range(50)),
    )
    plan = plan_of(database, statement)
    used = re.findall(r"(?:using|INDEX) (\w+)", plan)
    assert len(used) == len(expected), plan
    # Each database names a subquery in its own place.
    assert all(any(re.fullmatch(index, name) for name in used) for index in expected), plan


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        # A server without statistics takes either of two that fit.
        ({}, "agent_executions_of_tenant"),
        ({"user_id": "ada"}, "agent_executions_of_(user|tenant|session)"),
        ({"status": ExecutionStatus.FAILED}, "agent_executions_of_tenant"),
        ({"status": ExecutionStatus.PAUSED}, "agent_executions_unfinished(_of_user)?"),
        (
            {"status": ExecutionStatus.PAUSED, "user_id": "ada"},
            "agent_executions_unfinished(_of_user)?",
        ),
    ],
)
async def test_a_list_of_executions_is_read_by_its_index(
    store: Store, database: str, which: dict[str, Any], expected: str
) -> None:
    await make(
        store,
        a_session(),
        *(
            an_execution(f"x{n}", status=ExecutionStatus.COMPLETED, created_at=at(n))
            for n in range(300)
        ),
    )
    wanted = ExecutionFilter(tenant_id=TENANT, **which)
    statement, values = executions_query(wanted, (at(9), "x9"), 9)
    plan = plan_of(database, statement, values)
    used = re.findall(r"(?:using|on|INDEX) (agent_executions_\w+)", plan)
    used = [name for name in used if not re.fullmatch(_KEY, name)]
    # Those of a user are in their sessions, or in none.
    assert len(used) == (1 if which.get("user_id") is None else 2), plan
    assert all(re.fullmatch(expected, name) for name in used), plan
    assert not re.search(r"SCAN agent_|Seq Scan on agent_executions", plan), plan
