"""Queries for lists of executions and for the status of sessions, each made for its index."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from stepwell.sessions.ports import ExecutionFilter
from stepwell.stores.rows import before, literally, parameter, records_of
from stepwell.stores.tables import LISTED, UNFINISHED, executions, sessions

_HEAD = executions.alias("head")
_LAST = executions.alias("last")


def executions_query(
    which: ExecutionFilter, cursor: tuple[datetime, str] | None, limit: int
) -> tuple[Any, dict[str, Any]]:
    """Return the statement, newest first, and its parameters."""
    values: dict[str, Any] = {"tenant": which.tenant_id, "most": limit}
    conditions: list[Any] = [executions.c.parent_execution_id.is_(None)]
    for name in ("status", "agent_type"):
        if (value := getattr(which, name)) is not None:
            conditions.append(executions.c[name] == parameter(f"only_{name}"))
            values[f"only_{name}"] = value
    if cursor is not None:
        conditions.append(before(executions, "created_at"))
        values["cursor_time"], values["cursor_id"] = cursor
    is_over = which.status is None or which.status.is_terminal
    # Few are unfinished, and they may be the oldest: they have indexes of their own.
    listed = literally(f"agent_executions.{LISTED if is_over else UNFINISHED}")
    if which.user_id is not None:
        conditions.append(executions.c.owner_id == parameter("only_owner"))
        values["only_owner"] = which.user_id
    if not is_over:
        conditions.append(executions.c.user_id.is_not(None))
    query = records_of(executions).where(
        executions.c.tenant_id == parameter("tenant"), listed, *conditions
    )
    newest_first = query.order_by(executions.c.created_at.desc(), executions.c.id.desc())
    return newest_first.limit(parameter("most")), values


def statuses_query(session_ids: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Return a query for pairs of session id and status: that of the head, else of the newest
    execution."""
    values = {f"session_{place}": id for place, id in enumerate(session_ids)}
    head = (
        select(_HEAD.c.status)
        .where(_HEAD.c.session_id == sessions.c.id, _HEAD.c.parent_execution_id.is_(None))
        .where(literally(f"head.{UNFINISHED}"))
        .order_by(_HEAD.c.created_at, _HEAD.c.id)
        .limit(literally("1"))
        .scalar_subquery()
    )
    last = (
        select(_LAST.c.status)
        .where(_LAST.c.id == sessions.c.last_execution_id)
        .correlate(sessions)
        .scalar_subquery()
    )
    query = select(sessions.c.id, func.coalesce(head.correlate(sessions), last))
    return query.where(sessions.c.id.in_([parameter(name) for name in values])), values
