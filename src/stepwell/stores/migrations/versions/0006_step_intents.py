"""One row for the open step of an execution, in place of one per model turn and per tool call."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from alembic import op

from stepwell.stores.migrations.tables_0003 import ID, TIME

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the table, and move what is known of open steps into it."""
    op.create_table(
        "agent_step_intents",
        sa.Column(
            "execution_id",
            ID,
            sa.ForeignKey("agent_executions.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("step_number", sa.Integer, nullable=False),
        sa.Column("calls", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("response", sa.Text),
    )
    _move_rows(op.get_bind())
    op.drop_table("agent_ledger_calls")
    op.drop_table("agent_ledger_turns")


def _move_rows(connection: sa.Connection) -> None:
    """One intent per execution, for its newest step: older ones were stored and are forgotten."""
    found = connection.execute(
        sa.text(
            "SELECT execution_id, tenant_id, step_number, call_id, tool_name, effect, attempt, "
            "started_at, result FROM agent_ledger_calls ORDER BY started_at, call_id"
        )
    ).mappings()
    calls: dict[tuple[str, int], list[Any]] = {}
    for row in found:
        calls.setdefault((row["execution_id"], row["step_number"]), []).append(row)
    newest = dict(sorted(calls))
    for execution_id, step in newest.items():
        rows = calls[execution_id, step]
        response = connection.execute(
            sa.text(
                "SELECT response FROM agent_ledger_turns "
                "WHERE execution_id = :execution AND step_number = :step"
            ),
            {"execution": execution_id, "step": step},
        ).scalar()
        connection.execute(
            sa.text(
                "INSERT INTO agent_step_intents "
                "(execution_id, tenant_id, step_number, calls, created_at, response) "
                "VALUES (:execution, :tenant, :step, :calls, :at, :response)"
            ),
            {
                "execution": execution_id,
                "tenant": rows[0]["tenant_id"],
                "step": step,
                "calls": json.dumps([_call(row) for row in rows]),
                "at": rows[0]["started_at"],
                "response": response,
            },
        )


def _call(row: Any) -> dict[str, Any]:
    result = row["result"]
    return {
        "call_id": row["call_id"],
        "tool_name": row["tool_name"],
        "effect": row["effect"],
        "attempt": row["attempt"],
        "started_at": _iso(row["started_at"]),
        "result": None if result is None else json.loads(result),
    }


def _iso(time: Any) -> str:
    """SQLite had microseconds since 1970, PostgreSQL has times."""
    if isinstance(time, int):
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)
    return time if isinstance(time, str) else time.astimezone(UTC).isoformat()
