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

from stepwell.stores.database_url import open_store
from stepwell.stores.errors import SchemaVersionError
from stepwell.stores.schema_version import NEWEST, VERSION_TABLE, alembic_config
from stepwell.stores.tables import metadata
from tests.integration.stores.databases import run_sql

# Two processes that open a database at once; both have loaded all that they need before.
_OPEN_TWICE = """
import asyncio, os, sys
import alembic.command, sqlalchemy.ext.asyncio
from stepwell.stores.database_url import open_store
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
    run_sql(database, "DROP INDEX agent_executions_held")
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
