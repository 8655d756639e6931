"""Who an execution runs as, the roles of API keys, and an index for sessions about an object."""

import sqlalchemy as sa
from alembic import op

from stepwell.stores.types import JsonDocument

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Executions that are there run on as their user, without roles."""
    condition = sa.text("related_type IS NOT NULL")
    op.create_index(
        "agent_sessions_about",
        "agent_sessions",
        ["tenant_id", "related_type", "related_id", "updated_at", "id"],
        sqlite_where=condition,
        postgresql_where=condition,
    )
    for table, column, empty in (
        ("agent_executions", "principal", "{}"),
        ("agent_api_keys", "roles", "[]"),
    ):
        default = sa.text(f"'{empty}'")
        op.add_column(
            table, sa.Column(column, JsonDocument, nullable=False, server_default=default)
        )
