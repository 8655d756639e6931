"""Migrations: they give exactly our tables, once, and an unknown version is refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine

from stepwell.stores.errors import SchemaVersionError
from stepwell.stores.migrating import NEWEST, VERSION_TABLE, alembic_config
from stepwell.stores.opening import open_store
from stepwell.stores.tables import metadata
from stepwell.testing.stores_rows import a_session, an_execution, make
from tests.integration.stores.databases import run_sql

# Two processes that open a database at once; both have loaded all that they need before.
_OPEN_TWICE = """
import asyncio, os, sys
import alembic.command, sqlalchemy.ext.asyncio
from stepwell.stores.opening import open_store
from stepwell.stores.postgres import postgres_store
from stepwell.stores.sqlite import sqlite_store
async def main():
    await (await open_store(sys.argv[1])).close()
other = os.fork()
asyncio.run(main())
if other:
    assert os.waitpid(other, 0)[1] == 0, "the other process failed"
"""


@pytest.fixture
def postgres_database(own_postgres: str) -> str:
    """Not the shared one."""
    return own_postgres


def _differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
    )
    return compare_metadata(context, metadata)


def _sync(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def test_migrations_give_exactly_the_tables_of_the_code(database: str) -> None:
    engine = create_engine(_sync(database))
    with engine.connect() as connection:
        assert _differences(connection) == []
        script = ScriptDirectory.from_config(alembic_config(connection))
        assert script.get_current_head() == NEWEST
    engine.dispose()


def test_a_table_that_was_forgotten_is_noticed(database: str) -> None:
    run_sql(database, "DROP TABLE agent_api_keys")
    run_sql(database, "DROP INDEX agent_events_in_order")
    engine = create_engine(_sync(database))
    with engine.connect() as connection:
        kinds = {difference[0] for difference in _differences(connection)}
    engine.dispose()
    assert {"add_table", "add_index"} <= kinds


async def test_a_newer_database_is_refused_and_left_alone(database: str) -> None:
    run_sql(database, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(SchemaVersionError, match=r"'9999'.*newer.*Update Stepwell"):
        await open_store(database)


async def test_an_empty_database_is_not_touched_without_leave(
    tmp_path: Path, empty_postgres: str
) -> None:
    for url in (f"sqlite:///{tmp_path}/new.db", empty_postgres):
        with pytest.raises(SchemaVersionError, match="no tables"):
            await open_store(url, migrate=False)
        await (await open_store(url)).close()
        await (await open_store(url, migrate=False)).close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_processes_that_start_at_once_migrate_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    if kind == "postgres":
        url = request.getfixturevalue("empty_postgres")
    command = [sys.executable, "-c", _OPEN_TWICE, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_database_of_the_first_version_keeps_what_it_has(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    if kind == "postgres":
        url = request.getfixturevalue("empty_postgres")
    store = await open_store(url)
    await make(store, a_session(), an_execution())
    await store.close()
    run_sql(url, "DROP TABLE agent_open_texts")
    for index in ("of_user", "of_tenant", "waiting", "waiting_of_tenant", "to_end", "held"):
        run_sql(url, f"DROP INDEX agent_executions_{index}")
    run_sql(url, "DROP TABLE agent_workers")
    kind_of_time = "timestamptz" if kind == "postgres" else "BIGINT"
    run_sql(url, f"ALTER TABLE agent_executions ADD COLUMN lease_until {kind_of_time}")
    run_sql(url, "CREATE INDEX agent_executions_claimable ON agent_executions (created_at, id)")
    run_sql(url, f"UPDATE {VERSION_TABLE} SET version_num = '0001'")
    with pytest.raises(SchemaVersionError, match=r"'0001'.*migrate=True"):
        await open_store(url, migrate=False)
    store = await open_store(url)
    assert await store.read(lambda tx: tx.execution("x")) == an_execution()
    await store.close()
    engine = create_engine(_sync(url))
    with engine.connect() as connection:
        assert _differences(connection) == []
    engine.dispose()
