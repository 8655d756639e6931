"""Leases of workers instead of leases of executions, and indexes for claims that are fair."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from stepwell.stores.migrations.tables_0003 import JSON, TIME

revision = "0004"
down_revision = "0003"

_WAITING = "status = 'pending' AND parent_execution_id IS NULL"


def upgrade() -> None:
    """Make them. What runs has no worker with a lease then, so it is taken over."""
    op.create_table(
        "agent_workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("lease_until", TIME, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("agents", JSON, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="agent_workers_pkey"),
    )
    op.drop_index("agent_executions_claimable", "agent_executions")
    op.drop_column("agent_executions", "lease_until")
    _index(
        "waiting_of_tenant",
        ["agent_type", "tenant_id", "created_at", "id"],
        f"{_WAITING} AND crashes >= 0",
    )
    _index("waiting", ["agent_type", "created_at", "id"], _WAITING)
    _index("to_end", ["created_at", "id"], f"{_WAITING} AND cancel_requested IS NOT NULL")
    _index("held", ["worker_id", "tenant_id"], "status = 'running' AND parent_execution_id IS NULL")


def _index(name: str, columns: list[str], condition: str) -> None:
    where: dict[str, Any] = {
        "sqlite_where": sa.text(condition),
        "postgresql_where": sa.text(condition),
    }
    op.create_index(f"agent_executions_{name}", "agent_executions", columns, unique=False, **where)
