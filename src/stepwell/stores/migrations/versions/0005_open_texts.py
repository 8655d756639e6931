"""The text so far of responses that are being generated."""

import sqlalchemy as sa
from alembic import op

from stepwell.stores.migrations.tables_0003 import ID, TIME

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table; losing what is in it costs nothing."""
    op.create_table(
        "agent_open_texts",
        sa.Column("session_id", ID, nullable=False),
        sa.Column("execution_id", ID, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step_number", sa.Integer(), nullable=False),
        sa.Column("response_index", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["agent_sessions.id"],
            name="agent_open_texts_session_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("execution_id", name="agent_open_texts_pkey"),
    )
    op.create_index("agent_open_texts_of_session", "agent_open_texts", ["session_id"])
