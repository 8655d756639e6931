"""The version of a database's tables: checks it, and migrates older tables."""

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection

from stepwell.stores.errors import SchemaVersionError
from stepwell.stores.types import SQLITE

VERSION_TABLE = "agent_schema_version"
"""Ours, so that an application's own migrations in the same database are left alone."""
NEWEST = "0008"
"""The newest migration; kept here so that a database that has it is opened without Alembic."""


async def check_or_migrate(connection: AsyncConnection, *, migrate: bool) -> None:
    """Migrate the tables to this version if ``migrate``, else check it. The caller holds a lock
    that keeps others from migrating. Raises ``SchemaVersionError``."""
    await connection.run_sync(_check_or_migrate, migrate)
    await connection.commit()


def _check_or_migrate(connection: Connection, migrate: bool) -> None:
    found = version_of(connection)
    if found == NEWEST:
        return
    config = alembic_config(connection)
    if found is not None and found not in _known_revisions(config):
        raise SchemaVersionError(found, NEWEST, is_newer=True)
    if not migrate:
        raise SchemaVersionError(found, NEWEST, is_newer=False)
    from alembic import command

    if connection.dialect.name == SQLITE:
        # Its driver begins no transactions of its own, and a migration is done whole or not at all.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    command.upgrade(config, "head")


def version_of(connection: Connection) -> str | None:
    """Return the version of the tables, or None if there are none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()


def alembic_config(connection: Connection) -> Any:
    """Return Alembic's configuration for that connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _known_revisions(config: Any) -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
