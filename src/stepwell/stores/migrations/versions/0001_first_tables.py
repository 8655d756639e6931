"""The first tables. What a migration makes never changes: a later one changes it."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

_TIME = sa.BigInteger().with_variant(postgresql.TIMESTAMP(timezone=True), "postgresql")
_JSON = sa.Text().with_variant(postgresql.JSON(), "postgresql")
_PACKED = sa.LargeBinary()


def upgrade() -> None:
    """Make them."""
    _api_keys()
    _sessions()
    _events()
    _executions()
    _indexes_of_executions()
    _session_messages()
    _ledger_calls()
    _ledger_turns()
    _state_snapshots()


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def _api_keys() -> None:
    op.create_table(
        "agent_api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("expires_at", _TIME, nullable=True),
        sa.Column("revoked_at", _TIME, nullable=True),
        sa.Column("last_used_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="agent_api_keys_pkey"),
    )
    op.create_index(
        "agent_api_keys_of_tenant",
        "agent_api_keys",
        ["tenant_id", "user_id", "created_at"],
        unique=False,
    )
    op.create_index("agent_api_keys_prefix", "agent_api_keys", ["prefix"], unique=True)


def _sessions() -> None:
    op.create_table(
        "agent_sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("agent_type", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("when_busy", sa.Text(), nullable=False),
        sa.Column("related_type", sa.Text(), nullable=True),
        sa.Column("related_id", sa.Text(), nullable=True),
        sa.Column("initial_context_url", sa.Text(), nullable=True),
        sa.Column("metadata", _JSON, nullable=False),
        sa.Column("last_execution_id", sa.Text(), nullable=True),
        sa.Column("last_snapshot_id", sa.Text(), nullable=True),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_message_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="agent_sessions_pkey"),
    )
    op.create_index("agent_sessions_by_age", "agent_sessions", ["updated_at", "id"], unique=False)
    op.create_index(
        "agent_sessions_of_tenant",
        "agent_sessions",
        ["tenant_id", "updated_at", "id"],
        unique=False,
    )
    op.create_index(
        "agent_sessions_of_user",
        "agent_sessions",
        ["tenant_id", "user_id", "updated_at", "id"],
        unique=False,
    )


def _events() -> None:
    op.create_table(
        "agent_events",
        sa.Column("id", _PACKED, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("payload", _PACKED, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("execution_id", _PACKED, nullable=True),
        sa.Column("payload_length", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["agent_sessions.id"],
            name="agent_events_session_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="agent_events_pkey"),
    )
    op.create_index("agent_events_in_order", "agent_events", ["session_id", "seq"], unique=True)


def _executions() -> None:
    op.create_table(
        "agent_executions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("agent_type", sa.Text(), nullable=False),
        sa.Column("definition_hash", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("parent_execution_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("agent_config", _JSON, nullable=False),
        sa.Column("input", _JSON, nullable=False),
        sa.Column("output", _JSON, nullable=True),
        sa.Column("step_count", sa.BigInteger(), nullable=False),
        sa.Column("token_usage", sa.BigInteger(), nullable=False),
        sa.Column("token_details", _JSON, nullable=False),
        sa.Column("cost", sa.Float(precision=53), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("decision", _JSON, nullable=True),
        sa.Column("pending", _JSON, nullable=False),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("last_snapshot_id", sa.Text(), nullable=True),
        sa.Column("metadata", _JSON, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("lease_until", _TIME, nullable=True),
        sa.Column("cancel_requested", sa.Text(), nullable=True),
        sa.Column("started_at", _TIME, nullable=True),
        sa.Column("completed_at", _TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["agent_sessions.id"],
            name="agent_executions_session_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="agent_executions_pkey"),
    )


def _indexes_of_executions() -> None:
    op.create_index(
        "agent_executions_by_status",
        "agent_executions",
        ["status"],
        unique=False,
        **_where("status IN ('pending', 'running', 'paused') AND attempt >= 0"),
    )
    op.create_index(
        "agent_executions_claimable",
        "agent_executions",
        ["created_at", "id"],
        unique=False,
        **_where("status IN ('pending', 'running') AND parent_execution_id IS NULL"),
    )
    op.create_index(
        "agent_executions_of_parent",
        "agent_executions",
        ["parent_execution_id", "created_at", "id"],
        unique=False,
        **_where("parent_execution_id IS NOT NULL"),
    )
    op.create_index(
        "agent_executions_of_session",
        "agent_executions",
        ["session_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        "agent_executions_one_running",
        "agent_executions",
        ["session_id"],
        unique=True,
        **_where("status = 'running' AND parent_execution_id IS NULL"),
    )
    op.create_index(
        "agent_executions_unfinished",
        "agent_executions",
        ["session_id", "created_at", "id"],
        unique=False,
        **_where("status IN ('pending', 'running', 'paused') AND parent_execution_id IS NULL"),
    )
    op.create_index(
        "agent_executions_unfinished_of_user",
        "agent_executions",
        ["tenant_id", "user_id"],
        unique=False,
        **_where(
            "status IN ('pending', 'running', 'paused') AND parent_execution_id IS NULL "
            "AND user_id IS NOT NULL"
        ),
    )


def _session_messages() -> None:
    op.create_table(
        "agent_session_messages",
        sa.Column("id", _PACKED, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("agent_execution_id", _PACKED, nullable=True),
        sa.Column("related_type", sa.Text(), nullable=True),
        sa.Column("related_id", sa.Text(), nullable=True),
        sa.Column("context_url", sa.Text(), nullable=True),
        sa.Column("metadata", _PACKED, nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["agent_sessions.id"],
            name="agent_session_messages_session_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="agent_session_messages_pkey"),
    )
    op.create_index(
        "agent_session_messages_in_order",
        "agent_session_messages",
        ["session_id", "created_at"],
        unique=True,
    )
    op.create_index(
        "agent_session_messages_of_user",
        "agent_session_messages",
        ["agent_execution_id", "created_at"],
        unique=False,
        **_where("role = 'user'"),
    )
    op.create_index(
        "agent_session_messages_once",
        "agent_session_messages",
        ["tenant_id", "idempotency_key"],
        unique=True,
        **_where("idempotency_key IS NOT NULL"),
    )


def _ledger_calls() -> None:
    op.create_table(
        "agent_ledger_calls",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("step_number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["execution_id"],
            ["agent_executions.id"],
            name="agent_ledger_calls_execution_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "execution_id", "step_number", "call_id", name="agent_ledger_calls_pkey"
        ),
    )


def _ledger_turns() -> None:
    op.create_table(
        "agent_ledger_turns",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("step_number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("response", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["execution_id"],
            ["agent_executions.id"],
            name="agent_ledger_turns_execution_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("execution_id", "step_number", name="agent_ledger_turns_pkey"),
    )


def _state_snapshots() -> None:
    op.create_table(
        "agent_state_snapshots",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("agent_execution_id", sa.Text(), nullable=False),
        sa.Column("chain_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("step_number", sa.Integer(), nullable=False),
        sa.Column("state_json", _PACKED, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("is_final", sa.Boolean(), nullable=False),
        sa.Column("debug_mode", sa.Boolean(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("agent_name", sa.Text(), nullable=True),
        sa.Column("parent_snapshot_id", sa.Text(), nullable=True),
        sa.Column("state_json_length", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_execution_id"],
            ["agent_executions.id"],
            name="agent_state_snapshots_agent_execution_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="agent_state_snapshots_pkey"),
    )
    op.create_index(
        "agent_state_snapshots_chain",
        "agent_state_snapshots",
        ["chain_id", "position"],
        unique=True,
    )
    op.create_index(
        "agent_state_snapshots_of_execution",
        "agent_state_snapshots",
        ["agent_execution_id"],
        unique=False,
    )
