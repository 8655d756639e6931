"""The tables. Columns are the fields of ``sessions.records``; all but a worker have a tenant.

What is written before the row that it points to has no foreign key: ``last_*`` of a session,
``agent_execution_id`` of a message, ``parent_*``.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

from stepwell.stores.types import JsonText, PackedId, PackedJson, PackedText, UtcTime

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
    }
)


def _key(name: str) -> Column[Any]:
    return Column(name, Text, primary_key=True)


def _text(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=null)


def _time(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, UtcTime, nullable=null)


def _json(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, JsonText, nullable=null)


def _number(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False)


def _of(name: str, parent: str, *, null: bool = False, key: bool = False) -> Column[Any]:
    owner = ForeignKey(f"{parent}.id", ondelete="CASCADE")
    return Column(name, Text, owner, nullable=null, primary_key=key)


def _packed_id(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, PackedId, nullable=null)


def _length(name: str) -> Column[Any]:
    return Column(f"{name}_length", Integer, nullable=False, info={"length_of": name})


def length_of(column: Column[Any]) -> str | None:
    """The name of the column that has the length of that one's document, if there is one."""
    name = f"{column.name}_length"
    return name if name in column.table.c else None


def fields_of(table: Table) -> list[Column[Any]]:
    """Its columns that are fields of its record, in their order."""
    return [column for column in table.c if "length_of" not in column.info]


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
    _text("last_execution_id", null=True),
    _text("last_snapshot_id", null=True),
    _number("last_seq"),
    _time("last_message_at", null=True),
    Index("agent_sessions_of_user", "tenant_id", "user_id", "updated_at", "id"),
    Index("agent_sessions_of_tenant", "tenant_id", "updated_at", "id"),
    Index("agent_sessions_by_age", "updated_at", "id"),
)

messages = Table(
    "agent_session_messages",
    metadata,
    Column("id", PackedId, primary_key=True),
    _text("tenant_id"),
    _of("session_id", "agent_sessions"),
    _text("role"),
    _text("content"),
    _time("created_at"),
    _packed_id("agent_execution_id", null=True),
    _text("related_type", null=True),
    _text("related_id", null=True),
    _text("context_url", null=True),
    Column("metadata", PackedJson, nullable=False),
    _text("idempotency_key", null=True),
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
    _text("parent_execution_id", null=True),
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
    _text("last_snapshot_id", null=True),
    _json("metadata"),
    Column("attempt", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    _text("worker_id", null=True),
    _text("cancel_requested", null=True),
    _time("started_at", null=True),
    _time("completed_at", null=True),
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
        "agent_executions_of_user",
        "tenant_id",
        "user_id",
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
    _key("id"),
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
    _text("chain_id"),
    Column("position", Integer, nullable=False),
    Column("step_number", Integer, nullable=False),
    Column("state_json", PackedText, nullable=False),
    _time("created_at"),
    Column("is_final", Boolean, nullable=False),
    Column("debug_mode", Boolean, nullable=False),
    _text("agent_id", null=True),
    _text("agent_name", null=True),
    _text("parent_snapshot_id", null=True),
    _length("state_json"),
    Index("agent_state_snapshots_chain", "chain_id", "position", unique=True),
    Index("agent_state_snapshots_of_execution", "agent_execution_id"),
)

events = Table(
    "agent_events",
    metadata,
    Column("id", PackedId, primary_key=True),
    _text("tenant_id"),
    _of("session_id", "agent_sessions"),
    _number("seq"),
    _text("type"),
    Column("payload", PackedJson, nullable=False),
    _time("created_at"),
    _packed_id("execution_id", null=True),
    _length("payload"),
    Index("agent_events_in_order", "session_id", "seq", unique=True),
)

ledger_turns = Table(
    "agent_ledger_turns",
    metadata,
    _text("tenant_id"),
    _of("execution_id", "agent_executions", key=True),
    Column("step_number", Integer, primary_key=True, autoincrement=False),
    _text("response"),
    _time("created_at"),
)

ledger_calls = Table(
    "agent_ledger_calls",
    metadata,
    _text("tenant_id"),
    _of("execution_id", "agent_executions", key=True),
    Column("step_number", Integer, primary_key=True, autoincrement=False),
    Column("call_id", Text, primary_key=True),
    _text("tool_name"),
    _text("effect"),
    Column("attempt", Integer, nullable=False),
    _text("status"),
    _time("started_at"),
    _time("finished_at", null=True),
    _text("result", null=True),
)

api_keys = Table(
    "agent_api_keys",
    metadata,
    _key("id"),
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
    Index("agent_api_keys_prefix", "prefix", unique=True),
    Index("agent_api_keys_of_tenant", "tenant_id", "user_id", "created_at"),
)

open_texts = Table(
    "agent_open_texts",
    metadata,
    _of("session_id", "agent_sessions"),
    # A subagent has no row of its own yet while it speaks.
    Column("execution_id", Text, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("step_number", Integer, nullable=False),
    Column("response_index", Integer, nullable=False),
    _text("text"),
    _time("updated_at"),
    Index("agent_open_texts_of_session", "session_id"),
)
