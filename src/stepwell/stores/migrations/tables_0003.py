"""The tables that migration 0003 makes. Never changes: a later migration changes the tables."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

metadata = sa.MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)
ID = sa.Text().with_variant(postgresql.UUID(as_uuid=False), "postgresql")
TIME = sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")
EXACT_JSON = sa.Text().with_variant(postgresql.JSON(), "postgresql")
_UNFINISHED = "status IN ('pending', 'running', 'paused')"
_TOP = "parent_execution_id IS NULL"


def _column(name: str, type: Any, *extra: Any, null: bool = False, key: bool = False) -> Any:
    return sa.Column(name, type, *extra, nullable=null, primary_key=key, autoincrement=False)


def _of(name: str, parent: str, *, null: bool = False, key: bool = False) -> Any:
    owner = sa.ForeignKey(f"{parent}.id", ondelete="CASCADE")
    return _column(name, ID, owner, null=null, key=key)


def _of_execution_in_session(table: str, column: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["session_id", column],
        ["agent_executions.session_id", "agent_executions.id"],
        name=f"{table}_{column}_fkey",
        ondelete="CASCADE",
    )


def _words(column: str, *words: str) -> sa.CheckConstraint:
    known = ", ".join(f"'{word}'" for word in words)
    return sa.CheckConstraint(f"{column} IN ({known})", name=column)


def _index(name: str, *columns: str, where: str | None = None, unique: bool = False) -> sa.Index:
    if where is None:
        return sa.Index(name, *columns, unique=unique)
    condition = sa.text(where)
    return sa.Index(
        name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition
    )


_api_keys = sa.Table(
    "agent_api_keys",
    metadata,
    _column("id", sa.Text(), key=True),
    _column("tenant_id", sa.Text()),
    _column("user_id", sa.Text()),
    _column("name", sa.Text()),
    _column("prefix", sa.Text()),
    _column("secret_hash", sa.Text()),
    _column("created_at", TIME),
    _column("is_admin", sa.Boolean()),
    _column("expires_at", TIME, null=True),
    _column("revoked_at", TIME, null=True),
    _column("last_used_at", TIME, null=True),
    _index("agent_api_keys_prefix", "prefix", unique=True),
    _index("agent_api_keys_of_tenant", "tenant_id", "user_id", "created_at"),
)

_sessions = sa.Table(
    "agent_sessions",
    metadata,
    _column("id", ID, key=True),
    _column("tenant_id", sa.Text()),
    _column("user_id", sa.Text()),
    _column("agent_type", sa.Text()),
    _column("created_at", TIME),
    _column("updated_at", TIME),
    _column("title", sa.Text(), null=True),
    _column("status", sa.Text()),
    _column("when_busy", sa.Text()),
    _column("related_type", sa.Text(), null=True),
    _column("related_id", sa.Text(), null=True),
    _column("initial_context_url", sa.Text(), null=True),
    _column("metadata", JSON),
    _column("last_execution_id", ID, null=True),
    _column("last_snapshot_id", ID, null=True),
    _column("last_seq", sa.BigInteger()),
    _column("last_message_at", TIME, null=True),
    _words("status", "active", "archived", "closed"),
    _words("when_busy", "enqueue", "reject", "interrupt", "steer"),
    _index("agent_sessions_of_user", "tenant_id", "user_id", "updated_at", "id"),
    _index("agent_sessions_of_tenant", "tenant_id", "updated_at", "id"),
    _index("agent_sessions_by_age", "updated_at", "id"),
)

_executions = sa.Table(
    "agent_executions",
    metadata,
    _column("id", ID, key=True),
    _column("tenant_id", sa.Text()),
    _column("agent_type", sa.Text()),
    _column("definition_hash", sa.Text()),
    _column("created_at", TIME),
    _column("updated_at", TIME),
    _of("session_id", "agent_sessions", null=True),
    _column("user_id", sa.Text(), null=True),
    _of("parent_execution_id", "agent_executions", null=True),
    _column("status", sa.Text()),
    _column("agent_config", JSON),
    _column("input", JSON),
    _column("output", JSON, null=True),
    _column("step_count", sa.BigInteger()),
    _column("token_usage", sa.BigInteger()),
    _column("token_details", JSON),
    _column("cost", sa.Float(53)),
    _column("stop_reason", sa.Text(), null=True),
    _column("decision", JSON, null=True),
    _column("pending", JSON),
    _column("error_message", sa.Text(), null=True),
    _column("last_snapshot_id", ID, null=True),
    _column("metadata", JSON),
    _column("attempt", sa.Integer()),
    _column("crashes", sa.Integer()),
    _column("worker_id", sa.Text(), null=True),
    _column("lease_until", TIME, null=True),
    _column("cancel_requested", sa.Text(), null=True),
    _column("started_at", TIME, null=True),
    _column("completed_at", TIME, null=True),
    sa.UniqueConstraint("session_id", "id", name="agent_executions_in_session"),
    _words("status", "pending", "running", "paused", "completed", "stopped", "failed", "cancelled"),
    _index(
        "agent_executions_one_running",
        "session_id",
        where=f"status = 'running' AND {_TOP}",
        unique=True,
    ),
    _index(
        "agent_executions_unfinished",
        "session_id",
        "created_at",
        "id",
        where=f"{_UNFINISHED} AND {_TOP}",
    ),
    _index(
        "agent_executions_claimable",
        "created_at",
        "id",
        where=f"status IN ('pending', 'running') AND {_TOP}",
    ),
    _index(
        "agent_executions_unfinished_of_user",
        "tenant_id",
        "user_id",
        where=f"{_UNFINISHED} AND {_TOP} AND user_id IS NOT NULL",
    ),
    _index("agent_executions_by_status", "status", where=f"{_UNFINISHED} AND attempt >= 0"),
    _index(
        "agent_executions_of_user",
        "tenant_id",
        "user_id",
        "created_at",
        "id",
        where=f"{_TOP} AND agent_type <> ''",
    ),
    _index(
        "agent_executions_of_tenant",
        "tenant_id",
        "created_at",
        "id",
        where=f"{_TOP} AND agent_type <> ''",
    ),
    _index("agent_executions_of_session", "session_id", "created_at", "id"),
    _index(
        "agent_executions_of_parent",
        "parent_execution_id",
        "created_at",
        "id",
        where="parent_execution_id IS NOT NULL",
    ),
)

_messages = sa.Table(
    "agent_session_messages",
    metadata,
    _column("id", ID, key=True),
    _column("tenant_id", sa.Text()),
    _of("session_id", "agent_sessions"),
    _column("role", sa.Text()),
    _column("content", sa.Text()),
    _column("created_at", TIME),
    _column("agent_execution_id", ID, null=True),
    _column("related_type", sa.Text(), null=True),
    _column("related_id", sa.Text(), null=True),
    _column("context_url", sa.Text(), null=True),
    _column("metadata", JSON),
    _column("idempotency_key", sa.Text(), null=True),
    _of_execution_in_session("agent_session_messages", "agent_execution_id"),
    _words("role", "user", "assistant", "info", "notification"),
    _index("agent_session_messages_in_order", "session_id", "created_at", unique=True),
    _index(
        "agent_session_messages_of_user",
        "agent_execution_id",
        "created_at",
        where="role = 'user'",
    ),
    _index(
        "agent_session_messages_once",
        "tenant_id",
        "idempotency_key",
        where="idempotency_key IS NOT NULL",
        unique=True,
    ),
)

_snapshots = sa.Table(
    "agent_state_snapshots",
    metadata,
    _column("id", ID, key=True),
    _column("tenant_id", sa.Text()),
    _of("agent_execution_id", "agent_executions"),
    _column("chain_id", ID),
    _column("position", sa.Integer()),
    _column("step_number", sa.Integer()),
    _column("state_json", EXACT_JSON, null=True),
    _column("created_at", TIME),
    _column("is_final", sa.Boolean()),
    _column("agent_id", sa.Text(), null=True),
    _column("agent_name", sa.Text(), null=True),
    _column(
        "parent_snapshot_id",
        ID,
        sa.ForeignKey("agent_state_snapshots.id", ondelete="SET NULL"),
        null=True,
    ),
    _column("increment_zlib", sa.LargeBinary(), null=True),
    _column("state_json_length", sa.Integer()),
    sa.CheckConstraint("(state_json IS NULL) <> (increment_zlib IS NULL)", name="one_document"),
    sa.CheckConstraint("position > 0 OR state_json IS NOT NULL", name="whole"),
    _index("agent_state_snapshots_chain", "chain_id", "position", unique=True),
    _index("agent_state_snapshots_of_execution", "agent_execution_id"),
    _index(
        "agent_state_snapshots_of_parent",
        "parent_snapshot_id",
        where="parent_snapshot_id IS NOT NULL",
    ),
)

_journal = sa.Table(
    "agent_journal",
    metadata,
    _of("session_id", "agent_sessions", key=True),
    _column("seq", sa.BigInteger(), key=True),
    _column("type", sa.Text()),
    _column("payload", JSON),
    _column("execution_id", ID, null=True),
    _column("message_id", ID, null=True),
    _column("created_at", TIME),
    _column("tenant_id", sa.Text()),
    _of_execution_in_session("agent_journal", "execution_id"),
)

_ledger_turns = sa.Table(
    "agent_ledger_turns",
    metadata,
    _column("tenant_id", sa.Text()),
    _of("execution_id", "agent_executions", key=True),
    _column("step_number", sa.Integer(), key=True),
    _column("response", sa.Text()),
    _column("created_at", TIME),
)

_ledger_calls = sa.Table(
    "agent_ledger_calls",
    metadata,
    _column("tenant_id", sa.Text()),
    _of("execution_id", "agent_executions", key=True),
    _column("step_number", sa.Integer(), key=True),
    _column("call_id", sa.Text(), key=True),
    _column("tool_name", sa.Text()),
    _column("effect", sa.Text()),
    _column("attempt", sa.Integer()),
    _column("status", sa.Text()),
    _column("started_at", TIME),
    _column("finished_at", TIME, null=True),
    _column("result", sa.Text(), null=True),
    _words("effect", "pure", "idempotent", "external"),
    _words("status", "started", "finished"),
)

PARENTS_FIRST: Sequence[sa.Table] = (
    _api_keys,
    _sessions,
    _executions,
    _messages,
    _snapshots,
    _journal,
    _ledger_turns,
    _ledger_calls,
)
