"""The owner of each execution, so that a page of a user's executions is read by one index."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_LISTED = sa.text("parent_execution_id IS NULL AND agent_type <> ''")
_WHERE: dict[str, Any] = {"sqlite_where": _LISTED, "postgresql_where": _LISTED}


def upgrade() -> None:
    """Add the column, fill it, and put its index in place of the one by ``user_id``."""
    op.add_column("agent_executions", sa.Column("owner_id", sa.Text, nullable=True))
    op.execute(
        "UPDATE agent_executions SET owner_id = COALESCE((SELECT agent_sessions.user_id "
        "FROM agent_sessions WHERE agent_sessions.id = agent_executions.session_id), user_id)"
    )
    op.drop_index("agent_executions_of_user", table_name="agent_executions")
    op.create_index(
        "agent_executions_of_owner",
        "agent_executions",
        ["tenant_id", "owner_id", "created_at", "id"],
        unique=False,
        **_WHERE,
    )
