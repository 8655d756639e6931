"""The tables. Columns are the fields of ``sessions.records``; all but a worker have a tenant.

Meant to be read: ids are UUIDs, documents JSON, times UTC; see docs/reference/database.md.

Deleting a session deletes all that is its own, by foreign keys. What belongs to an execution names
it together with its session: the pair can't point into another session, and deletions find the rows
by the index on ``session_id``, so that ``agent_journal`` needs no index on its executions.

``last_*`` of sessions and executions and ``chain_id`` have no foreign keys: they point to rows that
point back, are written before them, and are hints to the newest row, which retention may delete.
Nor has ``message_id`` of the journal: it would need an index that costs each step more than its
entries. A message is written together with its entry and deleted with the session of both.
"""

from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import MessageRole, SessionStatus, WhenBusy
from stepwell.stores.types import ExactDocument, Id, JsonDocument, UtcTime

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)


def _key(name: str) -> Column[Any]:
    return Column(name, Id, primary_key=True)


def _id(name: str) -> Column[Any]:
    return Column(name, Id, nullable=True)


def _text(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=null)


def _time(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, UtcTime, nullable=null)


def _json(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, JsonDocument, nullable=null)


def _added_json(name: str, empty: str) -> Column[Any]:
    """A document that older rows lack; a migration gives them an empty one."""
    return Column(name, JsonDocument, nullable=False, server_default=text(f"'{empty}'"))


def _number(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False)


def _of(name: str, parent: str, *, null: bool = False, key: bool = False) -> Column[Any]:
    owner = ForeignKey(f"{parent}.id", ondelete="CASCADE")
    return Column(name, Id, owner, nullable=null, primary_key=key)


def _of_execution_in_session(table: str, column: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["session_id", column],
        ["agent_executions.session_id", "agent_executions.id"],
        name=f"{table}_{column}_fkey",
        ondelete="CASCADE",
    )


def _words(column: str, words: type[StrEnum]) -> CheckConstraint:
    known = ", ".join(f"'{word.value}'" for word in words)
    return CheckConstraint(f"{column} IN ({known})", name=column)


_STORED_APART = {"stored_apart": True}


def fields_of(table: Table) -> list[Column[Any]]:
    """The columns that are fields of the table's record, in their order."""
    return [column for column in table.c if column.info != _STORED_APART]


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


sessions = Table(
    "agent_sessions",
    metadata,
    _key("id"),
    _text("tenant_id"),
    _text("user_id"),
    _text("agent_type"),
    _time("created_at"),
    _time("updated_at"),
    _text("title", null=True),
    _text("status"),
    _text("when_busy"),
    _text("related_type", null=True),
    _text("related_id", null=True),
    _text("initial_context_url", null=True),
    _json("metadata"),
    _id("last_execution_id"),
    _id("last_snapshot_id"),
    _number("last_seq"),
    _time("last_message_at", null=True),
    _words("status", SessionStatus),
    _words("when_busy", WhenBusy),
    Index("agent_sessions_of_user", "tenant_id", "user_id", "updated_at", "id"),
    Index("agent_sessions_of_tenant", "tenant_id", "updated_at", "id"),
    Index("agent_sessions_by_age", "updated_at", "id"),
    Index(
        "agent_sessions_about",
        "tenant_id",
        "related_type",
        "related_id",
        "updated_at",
        "id",
        **_where("related_type IS NOT NULL"),
    ),
)

messages = Table(
    "agent_session_messages",
    metadata,
    _key("id"),
    _text("tenant_id"),
    _of("session_id", "agent_sessions"),
    _text("role"),
    _text("content"),
    _time("created_at"),
    _id("agent_execution_id"),
    _text("related_type", null=True),
    _text("related_id", null=True),
    _text("context_url", null=True),
    _json("metadata"),
    _text("idempotency_key", null=True),
    _of_execution_in_session("agent_session_messages", "agent_execution_id"),
    _words("role", MessageRole),
    Index("agent_session_messages_in_order", "session_id", "created_at", unique=True),
    Index(
        "agent_session_messages_of_user",
        "agent_execution_id",
        "created_at",
        **_where("role = 'user'"),
    ),
    Index(
        "agent_session_messages_once",
        "tenant_id",
        "idempotency_key",
        unique=True,
        **_where("idempotency_key IS NOT NULL"),
    ),
)

UNFINISHED = "status IN ('pending', 'running', 'paused')"
"""Those that are not over; written out, because a partial index is used for literal words only."""


# Before a server has statistics, any index whose condition fits is as good to it as the right one.
# So the condition of each fits the queries that it was made for, and no others.
COUNTED = "attempt >= 0"
"""Always true; said by the one query that counts all."""
LISTED = "agent_type <> ''"
"""Always true; said by the queries that list what is over as well."""


BY_TENANT = "crashes >= 0"
"""Always true; said by the queries that go through what waits by tenant."""

executions = Table(
    "agent_executions",
    metadata,
    _key("id"),
    _text("tenant_id"),
    _text("agent_type"),
    _text("definition_hash"),
    _time("created_at"),
    _time("updated_at"),
    _of("session_id", "agent_sessions", null=True),
    _text("user_id", null=True),
    _of("parent_execution_id", "agent_executions", null=True),
    _text("status"),
    _json("agent_config"),
    _json("input"),
    _json("output", null=True),
    _number("step_count"),
    _number("token_usage"),
    _json("token_details"),
    Column("cost", Float(53), nullable=False),
    _text("stop_reason", null=True),
    _json("decision", null=True),
    _json("pending"),
    _text("error_message", null=True),
    _id("last_snapshot_id"),
    _json("metadata"),
    Column("attempt", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    _text("worker_id", null=True),
    _text("cancel_requested", null=True),
    _time("started_at", null=True),
    _time("completed_at", null=True),
    # Whose list it is in: the user of its session, or its own without one. Never changes.
    Column("owner_id", Text, nullable=True, info=_STORED_APART),
    _added_json("principal", "{}"),
    UniqueConstraint("session_id", "id", name="agent_executions_in_session"),
    _words("status", ExecutionStatus),
    Index(
        "agent_executions_one_running",
        "session_id",
        unique=True,
        **_where("status = 'running' AND parent_execution_id IS NULL"),
    ),
    Index(
        "agent_executions_unfinished",
        "session_id",
        "created_at",
        "id",
        **_where(f"{UNFINISHED} AND parent_execution_id IS NULL"),
    ),
    Index(
        "agent_executions_waiting_of_tenant",
        "agent_type",
        "tenant_id",
        "created_at",
        "id",
        **_where(f"status = 'pending' AND parent_execution_id IS NULL AND {BY_TENANT}"),
    ),
    Index(
        "agent_executions_waiting",
        "agent_type",
        "created_at",
        "id",
        **_where("status = 'pending' AND parent_execution_id IS NULL"),
    ),
    Index(
        "agent_executions_to_end",
        "created_at",
        "id",
        **_where(
            "status = 'pending' AND parent_execution_id IS NULL AND cancel_requested IS NOT NULL"
        ),
    ),
    Index(
        "agent_executions_held",
        "worker_id",
        "tenant_id",
        **_where("status = 'running' AND parent_execution_id IS NULL"),
    ),
    Index(
        "agent_executions_unfinished_of_user",
        "tenant_id",
        "user_id",
        **_where(f"{UNFINISHED} AND parent_execution_id IS NULL AND user_id IS NOT NULL"),
    ),
    Index("agent_executions_by_status", "status", **_where(f"{UNFINISHED} AND {COUNTED}")),
    Index(
        "agent_executions_of_owner",
        "tenant_id",
        "owner_id",
        "created_at",
        "id",
        **_where(f"parent_execution_id IS NULL AND {LISTED}"),
    ),
    Index(
        "agent_executions_of_tenant",
        "tenant_id",
        "created_at",
        "id",
        **_where(f"parent_execution_id IS NULL AND {LISTED}"),
    ),
    Index("agent_executions_of_session", "session_id", "created_at", "id"),
    Index(
        "agent_executions_of_parent",
        "parent_execution_id",
        "created_at",
        "id",
        **_where("parent_execution_id IS NOT NULL"),
    ),
)

workers = Table(
    "agent_workers",
    metadata,
    Column("id", Text, primary_key=True),
    _time("lease_until"),
    _time("started_at"),
    _text("version"),
    _json("agents"),
    _text("host"),
    _number("pid"),
)

snapshots = Table(
    "agent_state_snapshots",
    metadata,
    _key("id"),
    _text("tenant_id"),
    _of("agent_execution_id", "agent_executions"),
    Column("chain_id", Id, nullable=False),
    Column("position", Integer, nullable=False),
    Column("step_number", Integer, nullable=False),
    Column("state_json", ExactDocument, nullable=True),
    _time("created_at"),
    Column("is_final", Boolean, nullable=False),
    _text("agent_id", null=True),
    _text("agent_name", null=True),
    Column(
        "parent_snapshot_id",
        Id,
        ForeignKey("agent_state_snapshots.id", ondelete="SET NULL"),
        nullable=True,
    ),
    Column("increment_zlib", LargeBinary, nullable=True, info=_STORED_APART),
    Column("state_json_length", Integer, nullable=False, info=_STORED_APART),
    # A step's increment is compressed (see ``increments``); everything else is JSON.
    CheckConstraint("(state_json IS NULL) <> (increment_zlib IS NULL)", name="one_document"),
    CheckConstraint("position > 0 OR state_json IS NOT NULL", name="whole"),
    Index("agent_state_snapshots_chain", "chain_id", "position", unique=True),
    Index("agent_state_snapshots_of_execution", "agent_execution_id"),
    Index(
        "agent_state_snapshots_of_parent",
        "parent_snapshot_id",
        **_where("parent_snapshot_id IS NOT NULL"),
    ),
)

journal = Table(
    "agent_journal",
    metadata,
    _of("session_id", "agent_sessions", key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    _text("type"),
    _json("payload"),
    _id("execution_id"),
    _id("message_id"),
    _time("created_at"),
    _text("tenant_id"),
    _of_execution_in_session("agent_journal", "execution_id"),
)

step_intents = Table(
    "agent_step_intents",
    metadata,
    _of("execution_id", "agent_executions", key=True),
    _text("tenant_id"),
    Column("step_number", Integer, nullable=False),
    _text("calls"),
    _time("created_at"),
    _text("response", null=True),
)

api_keys = Table(
    "agent_api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant_id"),
    _text("user_id"),
    _text("name"),
    _text("prefix"),
    _text("secret_hash"),
    _time("created_at"),
    Column("is_admin", Boolean, nullable=False),
    _time("expires_at", null=True),
    _time("revoked_at", null=True),
    _time("last_used_at", null=True),
    _added_json("roles", "[]"),
    Index("agent_api_keys_prefix", "prefix", unique=True),
    Index("agent_api_keys_of_tenant", "tenant_id", "user_id", "created_at"),
)

open_texts = Table(
    "agent_open_texts",
    metadata,
    _of("session_id", "agent_sessions"),
    # A subagent has no row of its own yet while it speaks.
    _key("execution_id"),
    Column("attempt", Integer, nullable=False),
    Column("step_number", Integer, nullable=False),
    Column("response_index", Integer, nullable=False),
    _text("text"),
    _time("updated_at"),
    Index("agent_open_texts_of_session", "session_id"),
)
