"""The queries behind the list of a user's or a tenant's executions, and behind where sessions
stand. Put together for one use, each by the index that was made for it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import exists, func, or_, select

from stepwell.sessions.ports import ExecutionFilter
from stepwell.stores.rows import before, given, literally, records_of
from stepwell.stores.tables import LISTED, UNFINISHED, executions, sessions

_HEAD = executions.alias("head")
_LAST = executions.alias("last")
_IN_OWN_SESSION = or_(
    executions.c.session_id.is_(None),
    exists(literally("1"))
    .select_from(sessions)
    .where(sessions.c.id == executions.c.session_id, sessions.c.user_id == executions.c.user_id),
)


def executions_query(
    which: ExecutionFilter, cursor: tuple[datetime, str] | None, limit: int
) -> tuple[Any, dict[str, Any]]:
    """Newest first; the statement, and the values that go with it."""
    values: dict[str, Any] = {"tenant": which.tenant_id, "most": limit}
    query = records_of(executions).where(
        executions.c.tenant_id == given("tenant"), executions.c.parent_execution_id.is_(None)
    )
    if which.status is None or which.status.is_over:
        query = query.where(literally(f"agent_executions.{LISTED}"))
    else:
        # Few are unfinished, and they may be the oldest: they have an index of their own.
        query = query.where(
            literally(f"agent_executions.{UNFINISHED}"), executions.c.user_id.is_not(None)
        )
    for name in ("user_id", "status", "agent_type"):
        if (value := getattr(which, name)) is not None:
            query = query.where(executions.c[name] == given(f"only_{name}"))
            values[f"only_{name}"] = value
    if which.user_id is not None:
        # Administrators also send to sessions of others, which they may not read for ever.
        query = query.where(_IN_OWN_SESSION)
    if cursor is not None:
        query = query.where(before(executions, "created_at"))
        values["cursor_time"], values["cursor_id"] = cursor
    newest = query.order_by(executions.c.created_at.desc(), executions.c.id.desc())
    return newest.limit(given("most")), values


def statuses_query(session_ids: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Session and status: that of its head, or else of its newest execution."""
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
    return query.where(sessions.c.id.in_([given(name) for name in values])), values
