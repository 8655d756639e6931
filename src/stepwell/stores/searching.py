"""The query behind a list of sessions. Words are looked for without regard to case."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select

from stepwell.sessions.ports import SessionFilter
from stepwell.stores.rows import before, given, literally, records_of
from stepwell.stores.tables import messages, sessions

FOLD = "lower"
"""SQLite's own knows the 26 letters only, so a connection to it is given a better one."""
MAX_WORDS = 10


def sessions_query(
    which: SessionFilter, cursor: tuple[datetime, str] | None, limit: int
) -> tuple[Any, dict[str, Any]]:
    """The statement, and the values that go with it."""
    values: dict[str, Any] = {"tenant": which.tenant_id, "most": limit}
    query = records_of(sessions).where(sessions.c.tenant_id == given("tenant"))
    for name in ("user_id", "status", "agent_type"):
        if (value := getattr(which, name)) is not None:
            query = query.where(sessions.c[name] == given(f"only_{name}"))
            values[f"only_{name}"] = value
    for place, word in enumerate(_words(which.search)):
        query = query.where(_says(f"word_{place}"))
        values[f"word_{place}"] = pattern(word)
    if cursor is not None:
        query = query.where(before(sessions, "updated_at"))
        values["cursor_time"], values["cursor_id"] = cursor
    newest = query.order_by(sessions.c.updated_at.desc(), sessions.c.id.desc())
    return newest.limit(given("most")), values


def pattern(word: str) -> str:
    """What a text with that word in it is like.

    >>> pattern("50%")
    '%50!%%'
    """
    escaped = word.lower().replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%"


def _words(search: str | None) -> list[str]:
    return (search or "").split()[:MAX_WORDS]


def _says(name: str) -> ColumnElement[bool]:
    word: Any = given(name)
    folded = getattr(func, FOLD)
    said = (
        select(literally("1"))
        .where(messages.c.session_id == sessions.c.id)
        .where(messages.c.role.in_([literally("'user'"), literally("'assistant'")]))
        .where(folded(messages.c.content).like(word, escape="!"))
    )
    return or_(folded(sessions.c.title).like(word, escape="!"), said.exists())
