"""Readable tables: ids, documents and times that a person can read and join, with foreign keys and
checks. ``agent_events`` becomes ``agent_journal``.

The old tables are renamed, the new ones filled from them, the old ones dropped, all in one
transaction: whoever is interrupted starts over from what was there. A document that is damaged
becomes one that says so; no row is left out.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import AddConstraint, CreateTable

from stepwell.stores.errors import DamagedDataError
from stepwell.stores.increments import compress_increment
from stepwell.stores.migrations.packed import unpack, unpack_id
from stepwell.stores.migrations.tables_0003 import ID, JSON, PARENTS_FIRST, TIME

revision = "0003"
down_revision = "0002"

logger = logging.getLogger("stepwell.stores")

_OLD_NAMES = {"agent_journal": "agent_events"}
_OLD_KEYS = {
    "agent_journal": ("id",),
    "agent_ledger_turns": ("execution_id", "step_number"),
    "agent_ledger_calls": ("execution_id", "step_number", "call_id"),
}
_PACKED_IDS = {
    "agent_session_messages": ("id", "agent_execution_id"),
    "agent_journal": ("id", "execution_id"),
}
_PACKED_JSON = {"agent_session_messages": ("metadata",), "agent_journal": ("payload",)}
_SOFT_REFERENCES = (
    "UPDATE agent_executions SET parent_execution_id = NULL WHERE NOT EXISTS "
    "(SELECT 1 FROM agent_executions p WHERE p.id = agent_executions.parent_execution_id) "
    "AND parent_execution_id IS NOT NULL",
    "UPDATE agent_session_messages SET agent_execution_id = NULL WHERE NOT EXISTS "
    "(SELECT 1 FROM agent_executions x WHERE x.id = agent_session_messages.agent_execution_id "
    "AND x.session_id = agent_session_messages.session_id) AND agent_execution_id IS NOT NULL",
    "UPDATE agent_journal SET execution_id = NULL WHERE NOT EXISTS "
    "(SELECT 1 FROM agent_executions x WHERE x.id = agent_journal.execution_id "
    "AND x.session_id = agent_journal.session_id) AND execution_id IS NOT NULL",
    "UPDATE agent_journal SET message_id = NULL WHERE NOT EXISTS "
    "(SELECT 1 FROM agent_session_messages m WHERE m.id = agent_journal.message_id) "
    "AND message_id IS NOT NULL",
    "UPDATE agent_state_snapshots SET parent_snapshot_id = NULL WHERE NOT EXISTS "
    "(SELECT 1 FROM agent_state_snapshots p WHERE p.id = agent_state_snapshots.parent_snapshot_id) "
    "AND parent_snapshot_id IS NOT NULL",
)
"""The old tables allowed references to rows that are not there."""
_BATCH = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_DAMAGED = '{"damaged":true}'

Values = dict[str, Any]
Convert = Callable[[Any], Any]


def upgrade() -> None:
    """Make the new tables and move every row."""
    connection = op.get_bind()
    is_postgres = connection.dialect.name == "postgresql"
    if is_postgres:
        for setting in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            op.execute(f"SET LOCAL {setting} = 0")
    else:
        # Until the commit: a row may come before the one that it points to.
        op.execute("PRAGMA defer_foreign_keys = ON")
    for table in PARENTS_FIRST:
        _set_aside(connection, table.name)
    for table in PARENTS_FIRST:
        # PostgreSQL checks references at once, so they are added when all rows are there.
        keys: list[sa.ForeignKeyConstraint] | None = [] if is_postgres else None
        op.execute(CreateTable(table, include_foreign_key_constraints=keys))
    for table in PARENTS_FIRST:
        _copy(connection, table, is_postgres)
    for statement in _SOFT_REFERENCES:
        op.execute(statement)
    for table in PARENTS_FIRST:
        # SQLite prefers, of two that fit as well, the one that was made last.
        for index in sorted(table.indexes, key=lambda it: str(it.name)):
            index.create(connection)
        if is_postgres:
            for key in sorted(table.foreign_key_constraints, key=lambda it: str(it.name)):
                op.execute(AddConstraint(key, isolate_from_table=False))
    for table in reversed(PARENTS_FIRST):
        op.drop_table(_aside(table.name))


def _aside(table: str) -> str:
    return f"{_OLD_NAMES.get(table, table)}_0002"


def _set_aside(connection: sa.Connection, table: str) -> None:
    old = _OLD_NAMES.get(table, table)
    inspected = sa.inspect(connection)
    for index in inspected.get_indexes(old):
        op.drop_index(str(index["name"]), old)
    op.rename_table(old, _aside(table))
    if connection.dialect.name == "postgresql":
        op.execute(f"ALTER INDEX {old}_pkey RENAME TO {_aside(table)}_pkey")


def _copy(connection: sa.Connection, table: sa.Table, is_postgres: bool) -> None:
    names = [column.name for column in table.c]
    binds = ", ".join(f":{name}" for name in names)
    insert = sa.text(f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({binds})")
    converters = _converters(table, is_postgres)
    for rows in _batches(connection, table):
        connection.execute(insert, [_convert(table.name, row, converters) for row in rows])


def _batches(connection: sa.Connection, table: sa.Table) -> Iterator[Sequence[Values]]:
    old = sa.table(_aside(table.name))
    known = [column["name"] for column in sa.inspect(connection).get_columns(old.name)]
    documents = {column.name for column in table.c if column.type is JSON}
    documents.difference_update(_PACKED_JSON.get(table.name, ()))
    columns: list[Any] = [
        # As text: drivers differ in what they make of JSON.
        sa.cast(sa.column(name), sa.Text).label(name) if name in documents else sa.column(name)
        for name in known
    ]
    key: list[Any] = [sa.column(name) for name in _OLD_KEYS.get(table.name, ("id",))]
    query: Any = sa.select(*columns).select_from(old).order_by(*key).limit(_BATCH)
    page = query
    while rows := [dict(row) for row in connection.execute(page).mappings()]:
        last = [sa.literal(rows[-1][column.name]) for column in key]
        page = query.where(sa.tuple_(*key) > sa.tuple_(*last))
        yield rows


def _converters(table: sa.Table, is_postgres: bool) -> dict[str, Convert]:
    """How the values of each column change; those of the others stay as they are."""
    converters: dict[str, Convert] = {}
    for column in table.c:
        if column.type is ID and is_postgres:
            converters[column.name] = _require_uuid
        elif column.type is TIME and not is_postgres:
            converters[column.name] = _iso_time
        elif column.type is JSON:
            converters[column.name] = _without_nul
    return converters


def _convert(table: str, row: Values, converters: dict[str, Convert]) -> Values:
    for name in _PACKED_IDS.get(table, ()):
        row[name] = None if row[name] is None else unpack_id(bytes(row[name]))
    for name in _PACKED_JSON.get(table, ()):
        row[name] = _unpack(table, row, name)
    if table == "agent_journal":
        payload = json.loads(row["payload"])
        row["message_id"] = payload.get("message_id")
    elif table == "agent_state_snapshots":
        document = _unpack(table, row, "state_json")
        is_plain = row["position"] == 0 or row["is_final"]
        row["state_json"] = document if is_plain else None
        row["increment_zlib"] = None if is_plain else compress_increment(document)
    for name, convert in converters.items():
        row[name] = None if row[name] is None else convert(row[name])
    return row


def _unpack(table: str, row: Values, name: str) -> str:
    try:
        return unpack(bytes(row[name]))
    except ValueError as error:
        logger.error("%s of %s %s is damaged: %s", name, table, row["id"], error)
        return _DAMAGED


def _require_uuid(id: str) -> str:
    if _UUID.fullmatch(id) is None:
        raise DamagedDataError(
            f"the database has the id {id!r:.80}, which is not a UUID, so it can't become a uuid "
            "column. Nothing was changed. Give the row and those that point to it a UUID, then "
            "start again"
        )
    return id


def _iso_time(microseconds: int) -> str:
    time = _EPOCH + timedelta(microseconds=microseconds)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _without_nul(document: str) -> str:
    return _ESCAPED_NUL.sub(r"\1\\ufffd", document)
