"""A database that the last code with packed tables wrote: every row is there after the migration,
what waited can be answered, and what was interrupted is taken over.
"""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from sqlalchemy import create_engine

from stepwell.errors import SerializationError
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.runner import RunControl, Runner
from stepwell.sessions.ports import SessionFilter, Store, Transaction
from stepwell.sessions.records import Execution
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.views.reader import Reader
from stepwell.stores.database_url import open_store
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.schema_version import alembic_config
from stepwell.worker.jobs import PolledJobs
from tests.golden.databases.agents_0002 import CLOCK, SENT, agents
from tests.integration.stores.databases import run_sql

GOLDEN = Path(__file__).parents[2] / "golden" / "databases"
ROWS = {
    "agent_sessions": 6,
    "agent_session_messages": 57,
    "agent_executions": 9,
    "agent_state_snapshots": 17,
    "agent_journal": 109,
    "agent_step_intents": 1,
    "agent_api_keys": 1,
}


@pytest.fixture(params=["sqlite", "postgres"])
def old_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database as the landed code left it."""
    if request.param == "sqlite":
        path = tmp_path / "old.db"
        path.write_bytes(gzip.decompress((GOLDEN / "at_0002.db.gz").read_bytes()))
        return f"sqlite:///{path}"
    url: str = request.getfixturevalue("empty_postgres")
    _make_tables_of_0002(url.replace("postgresql://", "postgresql+psycopg://"))
    _copy_in(url, gzip.decompress((GOLDEN / "at_0002.copy.gz").read_bytes()))
    return url


def _make_tables_of_0002(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "0002")
    engine.dispose()


def _copy_in(url: str, blocks: bytes) -> None:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for block in blocks.split(b"\\.\n")[:-1]:
            table, _, rows = block.partition(b"\n")
            with cursor.copy(f"COPY {table.decode()} FROM STDIN") as into:  # type: ignore[arg-type]
                into.write(rows)


def _fetch(url: str, query: str) -> list[Any]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return file.execute(query).fetchall()
    with psycopg.connect(url) as server:
        return server.execute(query).fetchall()  # type: ignore[arg-type]


async def _executions(store: Store) -> list[Execution]:
    return list(await store.read(lambda tx: tx.executions(limit=99)))


def test_the_frozen_migrations_make_the_tables_of_the_landed_code(tmp_path: Path) -> None:
    golden = tmp_path / "golden.db"
    golden.write_bytes(gzip.decompress((GOLDEN / "at_0002.db.gz").read_bytes()))
    _make_tables_of_0002(f"sqlite:///{tmp_path / 'made.db'}")
    query = "SELECT name, sql FROM sqlite_master ORDER BY name"
    made = _fetch(f"sqlite:///{tmp_path / 'made.db'}", query)
    assert made == _fetch(f"sqlite:///{golden}", query)


async def test_every_row_is_there_and_can_be_read(old_database: str) -> None:
    store = await open_store(old_database)
    reader = Reader(store)
    try:
        for table, count in ROWS.items():
            assert _fetch(old_database, f"SELECT count(*) FROM {table}") == [(count,)], table
        which = SessionFilter(tenant_id="default")
        sessions = await store.read(lambda tx: tx.sessions(which, limit=99))
        assert len(sessions) == ROWS["agent_sessions"]
        for session in sessions:
            messages = await store.read(lambda tx, id=session.id: tx.messages(id, limit=99))
            entries = await store.read(lambda tx, id=session.id: tx.entries_after(id, 0, limit=99))
            assert [entry.seq for entry in entries] == list(range(1, session.last_seq + 1))
            assert messages[-1].created_at == session.last_message_at
            told = {entry.message_id: entry.payload for entry in entries if entry.message_id}
            copied = {it.id for it in messages if "copied_from" in it.metadata}
            assert set(told) | copied == {message.id for message in messages}
            for message in messages:
                if message.id in told:
                    assert told[message.id]["content"] == message.content
        executions = await _executions(store)
        for execution in executions:
            for snapshot in await store.read(lambda tx, id=execution.id: tx.snapshots(id)):
                state = await reader.state_of(snapshot.id)
                assert state.step_count == snapshot.step_number or not snapshot.position
    finally:
        await store.close()


async def test_texts_ids_and_times_are_what_they_were(old_database: str) -> None:
    store = await open_store(old_database)
    first, *_ = sorted(await _executions(store), key=lambda it: (it.created_at, it.id))
    session = await store.read(lambda tx: tx.session(first.session_id or ""))
    assert session is not None
    assert (session.title, session.metadata) == ("Grüße \U0001f600", {"größe": [1, 2.5, None]})
    sent = await store.read(lambda tx: tx.message(first.input["message_ids"][0]))
    assert sent is not None
    assert (sent.content, sent.agent_execution_id) == ("Grüße", first.id)
    assert sent.idempotency_key == "ada:k1"
    assert await store.read(lambda tx: tx.message_by_key("default", "ada:k1")) == sent
    assert sent.created_at == first.created_at
    assert sent.created_at.isoformat().startswith("2026-01-01T12:0")
    state = await Reader(store).state_of(first.last_snapshot_id or "")
    # A state comes back to the letter; what the page shows of it has no NUL.
    assert state.messages[2].text == "In Köln: Bäume, 山, \U0001f333 and a \x00"
    [key] = await store.read(lambda tx: tx.api_keys("default"))
    assert (key.id, key.prefix, key.is_admin) == ("key-1", "sw_abc", False)
    [child] = [it for it in await _executions(store) if it.parent_execution_id is not None]
    assert (child.agent_type, child.output, child.token_usage) == ("scout", "Trees.", 30)
    await store.close()


async def _run(store: Store, execution_id: str) -> Execution:
    CLOCK.advance(600.0)
    now = CLOCK.now()
    [claim] = await store.write(
        lambda tx: tx.claim([execution_id], worker_id="w", now=now), name="claim"
    )
    await Runner(store, PolledJobs(), agents(), clock=CLOCK).run(claim.execution, RunControl())
    found = await store.read(lambda tx: tx.execution(execution_id))
    assert found is not None
    return found


async def _with_status(store: Store, status: ExecutionStatus) -> Execution:
    [found] = [it for it in await _executions(store) if it.status is status]
    return found


async def test_what_waited_is_answered_and_goes_on(old_database: str) -> None:
    store = await open_store(old_database)
    waits = await _with_status(store, ExecutionStatus.PAUSED)
    [question] = waits.questions
    lifecycle = Lifecycle(store, PolledJobs(), agents(), clock=CLOCK)
    await lifecycle.answer(waits.id, question["question_id"], True)
    done = await _run(store, waits.id)
    assert (done.status, done.output, done.step_count) == ("completed", "It is gone.", 3)
    queued = await _with_status(store, ExecutionStatus.PENDING)
    assert (await _run(store, queued.id)).output == "No."
    await store.close()


async def test_what_was_interrupted_is_taken_over_and_no_call_repeated(old_database: str) -> None:
    store = await open_store(old_database)
    SENT.clear()
    cut_off = await _with_status(store, ExecutionStatus.RUNNING)
    done = await _run(store, cut_off.id)
    assert (done.status, done.output, done.attempt) == ("completed", "Written.", 2)
    assert SENT == []
    state = await Reader(store).state_of(done.last_snapshot_id or "")
    assert "It may or may not have taken effect" in state.messages[2].text
    await store.close()


@pytest.mark.parametrize("table", ["agent_events", "agent_session_messages"])
async def test_a_migration_that_fails_changes_nothing(old_database: str, table: str) -> None:
    run_sql(old_database, f"CREATE TABLE {table}_0002 (note TEXT)")
    with pytest.raises(Exception, match=f"{table}_0002"):
        await open_store(old_database)
    assert _fetch(old_database, "SELECT version_num FROM agent_schema_version") == [("0002",)]
    assert _fetch(old_database, "SELECT count(*) FROM agent_events") == [(109,)]
    run_sql(old_database, f"DROP TABLE {table}_0002")
    store = await open_store(old_database)
    assert len(await _executions(store)) == ROWS["agent_executions"]
    await store.close()


async def test_a_damaged_document_harms_only_itself(
    old_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage = "x'0102'" if old_database.startswith("sqlite") else "'\\x0102'"
    run_sql(old_database, f"UPDATE agent_events SET payload = {damage} WHERE seq = 1")
    run_sql(old_database, f"UPDATE agent_state_snapshots SET state_json = {damage} WHERE is_final")
    store = await open_store(old_database)
    assert "payload of agent_journal" in caplog.text

    async def look(tx: Transaction) -> int:
        which = SessionFilter(tenant_id="default")
        sessions = await tx.sessions(which, limit=9)
        found = [await tx.entries_after(it.id, 0, limit=1) for it in sessions]
        return sum(entries[0].payload == {"damaged": True} for entries in found)

    assert await store.read(look) == ROWS["agent_sessions"]
    done = [it for it in await _executions(store) if it.status is ExecutionStatus.COMPLETED]
    with pytest.raises(SerializationError):
        await Reader(store).state_of(done[0].last_snapshot_id or "")
    await store.close()


async def test_an_id_that_is_not_a_uuid_stops_it_on_postgres(old_database: str) -> None:
    run_sql(old_database, "UPDATE agent_sessions SET last_snapshot_id = 'n1'")
    if old_database.startswith("sqlite"):
        await (await open_store(old_database)).close()
        return
    with pytest.raises(DamagedDataError, match="'n1', which is not a UUID"):
        await open_store(old_database)
