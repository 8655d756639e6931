"""What the followers of a process ask together: one query, however many they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import json
from sqlalchemy import Table, cast, func, select

from stepwell.sessions.records import ApiKey, Session
from stepwell.stores import tables as t
from stepwell.stores.counting import CountedRows
from stepwell.stores.rows import given, records_of
from stepwell.stores.types import POSTGRESQL, SQLITE


def _with_news(function: Any) -> Any:
    known = function(given("known")).table_valued("key", "value")
    sessions = t.sessions.c
    return (
        select(sessions.id)
        .select_from(known.join(t.sessions, sessions.id == cast(known.c.key, sessions.id.type)))
        .where(sessions.last_seq > cast(known.c.value, sessions.last_seq.type))
    )


def _by_id(table: Table, function: Any) -> Any:
    ids = function(given("ids")).table_valued("value")
    return records_of(table).where(table.c.id.in_(select(cast(ids.c.value, table.c.id.type))))


# One JSON value instead of a parameter for each: the statement is the same for any number.
_WITH_NEWS = {
    SQLITE: _with_news(func.json_each),
    POSTGRESQL: _with_news(func.json_each_text),
}
_LISTS = {SQLITE: func.json_each, POSTGRESQL: func.json_array_elements_text}
_SESSIONS = {dialect: _by_id(t.sessions, function) for dialect, function in _LISTS.items()}
_KEYS = {dialect: _by_id(t.api_keys, function) for dialect, function in _LISTS.items()}


class FollowerRowsMixin(CountedRows):
    """See ``sessions.ports.FollowerRows``."""

    async def sessions_with_news(self, known: Mapping[str, int], /) -> Sequence[str]:
        """Return those of these sessions whose newest event has a higher number."""
        if not known:
            return []
        rows = await self._run(_WITH_NEWS[self._lane.dialect], known=json.encode(known).decode())
        return [row[0] for row in rows]

    async def sessions_by_id(self, session_ids: Sequence[str], /) -> Mapping[str, Session]:
        """Return those of these sessions that exist."""
        if not session_ids:
            return {}
        query, ids = _SESSIONS[self._lane.dialect], json.encode(session_ids).decode()
        return {found.id: found for found in await self._all(self._codecs.session, query, ids=ids)}

    async def api_keys_by_id(self, key_ids: Sequence[str], /) -> Mapping[str, ApiKey]:
        """Return those of these keys that exist, revoked ones as well."""
        if not key_ids:
            return {}
        query, ids = _KEYS[self._lane.dialect], json.encode(key_ids).decode()
        return {found.id: found for found in await self._all(self._codecs.key, query, ids=ids)}
