"""The query for a list of sessions, with a search that ignores case.

It does not use LIKE, whose cost grows with the length of the word times that of the text.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select

from stepwell.sessions.errors import RefusedError
from stepwell.sessions.ports import SessionFilter
from stepwell.stores.rows import before, literally, parameter, records_of
from stepwell.stores.tables import messages, sessions
from stepwell.stores.types import SQLITE

MAX_WORDS = 5
MAX_WORD_LENGTH = 50


def sessions_query(
    which: SessionFilter, cursor: tuple[datetime, str] | None, limit: int, dialect: str
) -> tuple[Any, dict[str, Any]]:
    """Return the statement and its parameters. Raises ``RefusedError`` if the search has too many
    words or a word that is too long."""
    values: dict[str, Any] = {"tenant": which.tenant_id, "most": limit}
    query = records_of(sessions).where(sessions.c.tenant_id == parameter("tenant"))
    for name in ("user_id", "status", "agent_type", "related_type", "related_id"):
        if (value := getattr(which, name)) is not None:
            query = query.where(sessions.c[name] == parameter(f"only_{name}"))
            values[f"only_{name}"] = value
    for place, word in enumerate(words_of(which.search)):
        query = query.where(_says(f"word_{place}", dialect))
        values[f"word_{place}"] = word
    if cursor is not None:
        query = query.where(before(sessions, "updated_at"))
        values["cursor_time"], values["cursor_id"] = cursor
    newest = query.order_by(sessions.c.updated_at.desc(), sessions.c.id.desc())
    return newest.limit(parameter("most")), values


def words_of(search: str | None) -> list[str]:
    """Return the words of a search, in lower case.

    >>> words_of("lost  Parcel")
    ['lost', 'parcel']
    """
    words = (search or "").split()
    if len(words) > MAX_WORDS or any(len(word) > MAX_WORD_LENGTH for word in words):
        raise RefusedError(
            f"a search has at most {MAX_WORDS} words of {MAX_WORD_LENGTH} characters each; "
            "search for fewer or shorter ones",
            code="search_too_long",
        )
    return [word.lower() for word in words]


def contains(text: str | None, word: str) -> bool:
    """Implement the SQL function ``contains`` for SQLite, whose own functions only fold ASCII.

    >>> contains("Größe", "größe")
    True
    """
    return text is not None and word in text.lower()


def _says(name: str, dialect: str) -> ColumnElement[bool]:
    word = parameter(name)
    said = (
        select(literally("1"))
        .where(messages.c.session_id == sessions.c.id)
        .where(messages.c.role.in_([literally("'user'"), literally("'assistant'")]))
        .where(_contains(messages.c.content, word, dialect))
    )
    return or_(_contains(sessions.c.title, word, dialect), said.exists())


def _contains(text: Any, word: Any, dialect: str) -> Any:
    if dialect == SQLITE:
        return func.contains(text, word)
    return func.strpos(func.lower(text), word) > literally("0")
