"""What the followers of a process ask together: one query, however many they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import json
from sqlalchemy import Table, cast, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from stepwell.sessions.bus import OpenText
from stepwell.sessions.records import ApiKeyRecord, Session
from stepwell.stores import tables as t
from stepwell.stores.codec import RecordCodec
from stepwell.stores.rows import parameter, records_of
from stepwell.stores.session_counters import CountedRows
from stepwell.stores.types import POSTGRESQL, SQLITE


def _with_news(function: Any) -> Any:
    known = function(parameter("known")).table_valued("key", "value")
    sessions = t.sessions.c
    return (
        select(sessions.id)
        .select_from(known.join(t.sessions, sessions.id == cast(known.c.key, sessions.id.type)))
        .where(sessions.last_seq > cast(known.c.value, sessions.last_seq.type))
    )


def _by_id(table: Table, function: Any) -> Any:
    ids = function(parameter("ids")).table_valued("value")
    return records_of(table).where(table.c.id.in_(select(cast(ids.c.value, table.c.id.type))))


# One JSON value instead of a parameter for each: the statement is the same for any number.
_WITH_NEWS = {
    SQLITE: _with_news(func.json_each),
    POSTGRESQL: _with_news(func.json_each_text),
}
_LISTS = {SQLITE: func.json_each, POSTGRESQL: func.json_array_elements_text}
_SESSIONS = {dialect: _by_id(t.sessions, function) for dialect, function in _LISTS.items()}
_KEYS = {dialect: _by_id(t.api_keys, function) for dialect, function in _LISTS.items()}


_TEXTS = t.open_texts
_TEXT_CODECS = {dialect: RecordCodec(OpenText, _TEXTS, dialect) for dialect in _LISTS}
_OPEN_TEXTS = records_of(_TEXTS).where(_TEXTS.c.session_id == parameter("session"))


def _upsert(insert: Any) -> Any:
    adding = insert(_TEXTS)
    new = {column.name: adding.excluded[column.name] for column in _TEXTS.c}
    return adding.on_conflict_do_update(
        index_elements=["execution_id"],
        set_=new,
        # A worker that was replaced must not write over the one that replaced it.
        where=_TEXTS.c.attempt <= adding.excluded.attempt,
    )


_SAVE_TEXT = {SQLITE: _upsert(sqlite.insert), POSTGRESQL: _upsert(postgresql.insert)}
_FORGET_TEXT = delete(_TEXTS).where(_TEXTS.c.execution_id == parameter("execution"))


class FollowerRowsMixin(CountedRows):
    """See ``sessions.ports.FollowerRows``."""

    async def sessions_with_news(self, known: Mapping[str, int], /) -> Sequence[str]:
        """Return those of these sessions whose newest event has a higher number."""
        known = {id: seq for id, seq in known.items() if self._may_exist(id)}
        if not known:
            return []
        rows = await self._run(_WITH_NEWS[self._lane.dialect], known=json.encode(known).decode())
        return [row[0] for row in rows]

    async def sessions_by_id(self, session_ids: Sequence[str], /) -> Mapping[str, Session]:
        """Return those of these sessions that exist."""
        session_ids = [id for id in session_ids if self._may_exist(id)]
        if not session_ids:
            return {}
        query, ids = _SESSIONS[self._lane.dialect], json.encode(session_ids).decode()
        return {found.id: found for found in await self._all(self._codecs.session, query, ids=ids)}

    async def api_keys_by_id(self, key_ids: Sequence[str], /) -> Mapping[str, ApiKeyRecord]:
        """Return those of these keys that exist, revoked ones as well."""
        if not key_ids:
            return {}
        query, ids = _KEYS[self._lane.dialect], json.encode(key_ids).decode()
        return {found.id: found for found in await self._all(self._codecs.key, query, ids=ids)}

    async def open_texts(self, session_id: str, /) -> Sequence[OpenText]:
        """Return the stored text so far of responses that are being generated."""
        codec = _TEXT_CODECS[self._lane.dialect]
        return codec.records(await self._run(_OPEN_TEXTS, session=session_id))

    async def save_open_texts(
        self, texts: Sequence[OpenText], /, *, closed: Sequence[str] = ()
    ) -> None:
        """Store the text so far of these responses, and forget that of others."""
        dialect = self._lane.dialect
        for text in texts:
            await self._lane.rows(_SAVE_TEXT[dialect], _TEXT_CODECS[dialect].values(text))
        for execution_id in closed:
            await self._run(_FORGET_TEXT, execution=execution_id)
