"""Indexes for the lists of a user's and of a tenant's executions."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_LISTED = sa.text("parent_execution_id IS NULL AND agent_type <> ''")
_WHERE: dict[str, Any] = {"sqlite_where": _LISTED, "postgresql_where": _LISTED}


def upgrade() -> None:
    """Make them."""
    op.create_index(
        "agent_executions_of_user",
        "agent_executions",
        ["tenant_id", "user_id", "created_at", "id"],
        unique=False,
        **_WHERE,
    )
    op.create_index(
        "agent_executions_of_tenant",
        "agent_executions",
        ["tenant_id", "created_at", "id"],
        unique=False,
        **_WHERE,
    )
