"""Open steps that the code before 0006 left in a database are known after the migration."""

import json
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, MetaData, create_engine

from stepwell.sessions.ids import derived_id
from stepwell.sessions.ledger.open_step import KnownStep, calls_begun
from stepwell.sessions.ports import ExecutionFilter, Transaction
from stepwell.stores.database_url import open_store
from stepwell.stores.schema_version import alembic_config

AT = "2026-11-17 10:00:00.000001+00:00"
LATER = "2026-11-17 10:00:05.250000+00:00"
SESSION = derived_id("session", 1)
FIRST, SECOND = derived_id("execution", 1), derived_id("execution", 2)
RESPONSE = '{"text": "I pay.", "finish_reason": "tool_calls"}'
RESULT = '{"content": "paid", "outcome": "completed"}'


@pytest.fixture(params=["sqlite", "postgres"])
def database_at_0005(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with rows of calls and turns."""
    url = f"sqlite:///{tmp_path / 'old.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("empty_postgres")
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "0005")
        _fill(connection)
    engine.dispose()
    return url


def _fill(connection: Connection) -> None:
    tables = MetaData()
    tables.reflect(connection)
    is_sqlite = connection.dialect.name == "sqlite"

    def document(value: Any) -> Any:
        return json.dumps(value) if is_sqlite else value

    def add(table: str, **values: Any) -> None:
        connection.execute(tables.tables[table].insert().values(tenant_id="t", **values))

    add(
        "agent_sessions",
        id=SESSION,
        user_id="ada",
        agent_type="helper",
        created_at=AT,
        updated_at=AT,
        status="active",
        when_busy="enqueue",
        metadata=document({}),
        last_seq=0,
    )
    for id, status in ((FIRST, "running"), (SECOND, "paused")):
        add(
            "agent_executions",
            id=id,
            session_id=SESSION,
            agent_type="helper",
            definition_hash="h",
            created_at=AT,
            updated_at=AT,
            status=status,
            agent_config=document({}),
            input=document({}),
            step_count=1,
            token_usage=0,
            token_details=document({}),
            cost=0.0,
            pending=document([]),
            metadata=document({}),
            attempt=1,
            crashes=0,
        )

    def add_call(execution: str, step: int, call: str, at: str, result: str | None = None) -> None:
        add(
            "agent_ledger_calls",
            execution_id=execution,
            step_number=step,
            call_id=call,
            tool_name=f"tool_{call}",
            effect="external",
            attempt=1,
            status="started" if result is None else "finished",
            started_at=at,
            finished_at=None if result is None else at,
            result=result,
        )

    add_call(FIRST, 1, "old", AT, RESULT)
    add_call(FIRST, 2, "b", LATER)
    add_call(FIRST, 2, "a", AT, RESULT)
    add_call(SECOND, 12, "c", AT)
    add_call(SECOND, 9, "old", AT, RESULT)
    for execution, step in ((FIRST, 1), (FIRST, 2), (SECOND, 9)):
        add(
            "agent_ledger_turns",
            execution_id=execution,
            step_number=step,
            response=RESPONSE,
            created_at=AT,
        )


async def test_the_newest_step_of_each_execution_is_known_with_its_calls(
    database_at_0005: str,
) -> None:
    store = await open_store(database_at_0005)
    try:

        async def look(tx: Transaction) -> list[Any]:
            return [await tx.intent(FIRST), await tx.intent(SECOND)]

        first, second = await store.read(look)
    finally:
        await store.close()
    assert (first.step_number, second.step_number) == (2, 12)
    assert (first.response, second.response) == (RESPONSE, None)
    assert first.tenant_id == "t"
    assert first.created_at.isoformat() == AT.replace(" ", "T")
    calls = json.loads(first.calls)
    assert [call["call_id"] for call in calls] == ["a", "b"]
    assert calls[0]["result"] == json.loads(RESULT)
    assert calls[1]["result"] is None
    assert calls_begun(first, 2) == ("tool_b",)
    known = KnownStep.as_far_as_readable(second, 12)
    assert known.calls["c"].started_at.isoformat() == AT.replace(" ", "T")


async def test_executions_are_listed_for_the_user_of_their_session(database_at_0005: str) -> None:
    store = await open_store(database_at_0005)
    which = ExecutionFilter(tenant_id="t", user_id="ada", status=None)
    found = await store.read(lambda tx: tx.newest_executions(which, limit=9))
    assert {each.id for each in found} == {FIRST, SECOND}
    await store.close()
