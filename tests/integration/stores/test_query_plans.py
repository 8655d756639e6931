"""What a worker does all the time finds its rows by the index that was made for it, on a server
that has no statistics yet as well."""

import re
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from stepwell.clock import SystemClock
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.ports import ExecutionFilter, Store
from stepwell.stores import claim_queries, execution_rows, session_rows
from stepwell.stores.codec import bind_value
from stepwell.stores.connection import Statements
from stepwell.stores.execution_queries import executions_query
from stepwell.stores.sqlite.sqlite_store import SqliteStore
from stepwell.testing.stores_rows import (
    TENANT,
    a_session,
    an_entry,
    an_execution,
    at,
    make,
    named_id,
    write,
)
from tests.integration.stores.databases import run_sql

_KEY = "(agent_executions_pkey|sqlite_autoindex_agent_executions_1)"
_HEAD = "agent_executions_unfinished"
_WAITING = "agent_executions_waiting"
_OF_TENANT = "agent_executions_waiting_of_tenant"
_HELD = "agent_executions_held"
_TO_END = "agent_executions_to_end"
_WORKER = "(agent_workers_pkey|sqlite_autoindex_agent_workers_1)"
_MESSAGES = "agent_session_messages_of_user"
_STATEMENTS: dict[str, tuple[Any, set[str]]] = {
    "free of these": (claim_queries.FREE_OF, {_KEY, _HEAD, _WORKER}),
    "claim": (execution_rows._CLAIM, {_KEY}),
    "claimable": (claim_queries.CLAIMABLE, {_WAITING, _OF_TENANT, _HELD, _TO_END, _HEAD, _WORKER}),
    "is work waiting": (claim_queries.IS_WORK_WAITING, {_WAITING, _HELD, _TO_END, _HEAD, _WORKER}),
    "waiting agents": (claim_queries.WAITING_AGENTS, {_WAITING}),
    "fence": (execution_rows._FENCE, {_KEY, _MESSAGES}),
    "held": (execution_rows._HELD, {_HELD}),
    "steering": (session_rows._SPOKEN_TO, {_MESSAGES}),
}
_VALUES = {
    "row_key": named_id("x1"),
    "execution": named_id("x1"),
    "own_attempt": 1,
    "now": at(0),
    "most": 9,
    "worker": "w",
    "worker_id": "w",
    "started_at": at(0),
    "updated_at": at(0),
    "agents": '["helper"]',
    "ids": f'["{named_id("x1")}", "{named_id("p1")}"]',
}


_COLUMNS = (
    "id, tenant_id, agent_type, definition_hash, created_at, updated_at, status, agent_config, "
    "input, step_count, token_usage, token_details, cost, pending, metadata, attempt, crashes"
)
_ROW = (
    "{id}, 'tenant' || (n % 7), 'helper', 'h', {time}, {time}, 'pending', '{{}}', '{{}}', "
    "0, 0, '{{}}', 0, '[]', '{{}}', 0, 0"
)
_TIME_OF_ROW = "'2026-01-01T00:00:00.' || printf('%06d', n) || 'Z'"
_MANY = {
    "sqlite": f"INSERT INTO agent_executions ({_COLUMNS}) WITH RECURSIVE numbers (n) AS (SELECT 1 "
    "UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) SELECT "
    + _ROW.format(id="'many' || n", time=_TIME_OF_ROW).replace("%", "%%")
    + " FROM numbers",
    "postgresql": f"INSERT INTO agent_executions ({_COLUMNS}) SELECT "
    + _ROW.format(id="gen_random_uuid()", time="to_timestamp(n)").replace("%", "%%")
    + " FROM generate_series(1, %d) AS n",
}


def plan_of(url: str, statement: Any, given: Mapping[str, Any] = _VALUES) -> str:
    is_file = url.startswith("sqlite")
    statements = Statements(SQLiteDialect_pysqlite() if is_file else PGDialect_psycopg())
    prepared = statements.compile(statement)
    values = prepared.values(
        {name: bind_value(value, statements.dialect) for name, value in given.items()}
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
    if isinstance(statement, dict):
        statement = statement["sqlite" if database.startswith("sqlite") else "postgresql"]
    plan = plan_of(database, statement)
    used = set(re.findall(r"(?:using|INDEX|Index Scan on) ([a-z]\w+)", plan))
    # SQLite fetches by key what it found, and of the few workers all may be read.
    allowed = expected | {_KEY, "agent_executions_one_running"}
    assert all(any(re.fullmatch(index, each) for index in allowed) for each in used), plan
    needed = expected - {_WORKER}
    assert all(any(re.fullmatch(index, each) for each in used) for index in needed), plan
    assert not re.search(r"(Seq Scan on|SCAN) (agent_executions|agent_session)(?! USING)", plan), (
        plan
    )


@pytest.mark.parametrize("waiting", [100_000])
async def test_a_look_at_many_that_wait_reads_few_rows(
    store: Store, database: str, waiting: int
) -> None:
    run_sql(database, _MANY["sqlite" if database.startswith("sqlite") else "postgresql"] % waiting)
    took: list[float] = []
    for _ in range(5):
        started = time.perf_counter()  # noqa: TID251 - the real time of a query
        found = await store.read(lambda tx: tx.claimable(at(0), limit=10, agents=("helper",)))
        assert await store.read(lambda tx: tx.is_work_waiting(at(0), agents=("helper",)))
        took.append(time.perf_counter() - started)  # noqa: TID251
        assert len(found) == 10
    # A look by index takes some milliseconds; one at all rows takes seconds.
    assert min(took) < 1.0


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        # A server without statistics takes either of two that fit.
        ({}, "agent_executions_of_tenant"),
        ({"user_id": "ada"}, "agent_executions_of_(owner|tenant)"),
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
    statement, values = executions_query(wanted, (at(9), named_id("x9")), 9)
    plan = plan_of(database, statement, values)
    used = re.findall(r"(?:using|on|INDEX) (agent_executions_\w+)", plan)
    used = [name for name in used if not re.fullmatch(_KEY, name)]
    assert len(used) == 1, plan
    assert all(re.fullmatch(expected, name) for name in used), plan
    assert not re.search(r"SCAN agent_|Seq Scan on agent_executions", plan), plan


async def test_saving_an_execution_costs_the_same_however_long_its_session_is(
    sqlite_file: Path,
) -> None:
    store = await SqliteStore.open(sqlite_file, clock=SystemClock(), migrate=False)
    session, execution = a_session(), an_execution()
    await make(store, session, execution)
    steps: list[int] = []

    async def count_steps() -> int:
        steps.clear()
        driver = store._writer._direct
        driver.set_progress_handler(lambda: steps.append(1), 10)
        await write(store, lambda tx: tx.save_execution(execution))
        driver.set_progress_handler(None, 0)
        return len(steps)

    early = await count_steps()
    events = [an_entry()] * 2000
    await write(store, lambda tx: tx.append(session, events))
    assert await count_steps() <= early + 5
    await store.close()


async def test_a_page_of_a_users_executions_costs_the_same_however_many_they_have(
    sqlite_file: Path,
) -> None:
    store = await SqliteStore.open(sqlite_file, clock=SystemClock(), migrate=False)

    async def add(first: int, count: int) -> None:
        await make(
            store,
            a_session(f"s{first}"),
            *(
                an_execution(
                    f"x{n}", f"s{first}", status=ExecutionStatus.COMPLETED, created_at=at(n)
                )
                for n in range(first, first + count)
            ),
        )

    async def count_steps() -> int:
        steps: list[int] = []
        wanted = ExecutionFilter(tenant_id=TENANT, user_id="ada")

        async def look(tx: Any) -> int:
            driver = tx._lane._direct
            driver.set_progress_handler(lambda: steps.append(1), 10)
            found = await tx.newest_executions(wanted, before=(at(99), named_id("x99")), limit=20)
            driver.set_progress_handler(None, 0)
            return len(found)

        assert await store.read(look) == 20
        return len(steps)

    await add(0, 100)
    early = await count_steps()
    await add(100, 2000)
    assert await count_steps() <= early + 5
    await store.close()
