"""Sessions, their messages and their journal."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace
from sqlalchemy import func, select

from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import SessionFilter, session_topic
from stepwell.sessions.records import EventType, JournalHead, Session, SessionMessage, StoredEntry
from stepwell.stores import tables as t
from stepwell.stores.connection import Row
from stepwell.stores.entry_payload import with_whole_payload, without_repetition
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.rows import (
    KEY,
    after,
    before,
    by_id,
    column_parameter,
    insert_into,
    literally,
    logger,
    parameter,
    records_of,
    update_all,
)
from stepwell.stores.session_counters import CountedRows
from stepwell.stores.session_queries import sessions_query

_TICK = timedelta(microseconds=1)
_BUNDLE = 16
"""Rows that one statement adds at most."""

_SESSION = records_of(t.sessions).where(by_id(t.sessions))
# Weaker than FOR UPDATE, as every writer but a deleting one: rows that point to the session can be
# added meanwhile, so two that do both can't block each other.
_LOCKED = _SESSION.with_for_update(key_share=True)
_HEAD = (
    select(t.sessions.c.tenant_id, t.sessions.c.last_seq, t.sessions.c.last_message_at)
    .where(by_id(t.sessions))
    .with_for_update(key_share=True)
)
_ADD = insert_into(t.sessions)
_SAVE = update_all(t.sessions, ("created_at", "last_seq", "last_message_at")).where(
    by_id(t.sessions)
)
_SAVE_WITH_COUNTERS = update_all(t.sessions, ("created_at",)).where(by_id(t.sessions))

_ADD_MESSAGE = insert_into(t.messages)
_MESSAGE = records_of(t.messages).where(by_id(t.messages))
_BY_KEY = records_of(t.messages).where(
    t.messages.c.tenant_id == column_parameter(t.messages, "tenant_id", "tenant"),
    t.messages.c.idempotency_key == column_parameter(t.messages, "idempotency_key", "key"),
)
_OF_SESSION = records_of(t.messages).where(t.messages.c.session_id == parameter("session"))
_TIME_UP = (t.messages.c.created_at, t.messages.c.id)
_TIME_DOWN = (t.messages.c.created_at.desc(), t.messages.c.id.desc())
_LAST = _OF_SESSION.order_by(*_TIME_DOWN).limit(parameter("most"))
_BEFORE = _LAST.where(before(t.messages, "created_at"))
_FIRST = _OF_SESSION.order_by(*_TIME_UP).limit(parameter("most"))
_AFTER = _FIRST.where(after(t.messages, "created_at"))
_SPOKEN_TO = (
    records_of(t.messages)
    .where(t.messages.c.agent_execution_id == parameter("execution"))
    .where(literally("role") == literally("'user'"))
    .order_by(*_TIME_UP)
)
_ADD_ENTRY = insert_into(t.journal)
_SEQ_AT = t.fields_of(t.journal).index(t.journal.c.seq)
_EVENTS_AFTER = (
    records_of(t.journal)
    .where(t.journal.c.session_id == parameter("session"), t.journal.c.seq > parameter("after"))
    .order_by(t.journal.c.seq)
    .limit(parameter("most"))
)
_RANGE = select(
    t.sessions.c.last_seq,
    select(func.min(t.journal.c.seq))
    .where(t.journal.c.session_id == t.sessions.c.id)
    .scalar_subquery(),
).where(by_id(t.sessions))


class SessionRowsMixin(CountedRows):
    """See ``sessions.ports.SessionRows``."""

    async def add_session(self, session: Session, /) -> None:
        """A new session."""
        await self._lane.rows(_ADD, self._codecs.session.values(session))
        self._count_from(session)

    async def session(self, session_id: str, /, *, lock: bool = False) -> Session | None:
        """The session; locked, nobody else writes to it until the transaction ends."""
        await self.write_counters()
        query = _LOCKED if lock else _SESSION
        found = await self._one(self._codecs.session, query, **{KEY: session_id})
        if lock and found is not None:
            self._count_from(found)
        return found

    async def lock_journal(self, session_id: str, /) -> JournalHead | None:
        """Lock the session and read only what ``append`` needs of it."""
        await self.write_counters()
        rows = await self._lane.rows(_HEAD, {KEY: session_id})
        if not rows:
            return None
        tenant_id, last_seq, last_time = rows[0]
        self._start_counting(session_id, last_seq, last_time)
        return JournalHead(id=session_id, tenant_id=tenant_id, last_seq=last_seq)

    async def save_session(self, session: Session, /) -> None:
        """Its fields as they are now, but for the two counters."""
        counters = self._counters.get(session.id)
        if counters is None or not counters.changed:
            await self._lane.rows(_SAVE, self._saved_values(session))
            return
        counted = replace(
            session, last_seq=counters.last_seq, last_message_at=counters.last_message_at
        )
        await self._lane.rows(_SAVE_WITH_COUNTERS, self._saved_values(counted))
        counters.changed = False

    def _saved_values(self, session: Session) -> dict[str, Any]:
        return {**self._codecs.session.values(session), KEY: session.id}

    async def sessions(
        self, which: SessionFilter, *, before: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Session]:
        """Newest first by ``(updated_at, id)``, those before that pair."""
        await self.write_counters()
        query, values = sessions_query(which, before, limit, self._lane.dialect)
        fetch = self._scan if which.search is None else self._search
        return await self._list(self._codecs.session, fetch, query, **values)

    async def add_messages(
        self, session: Session | JournalHead, messages: Sequence[SessionMessage]
    ) -> Sequence[SessionMessage]:
        """New messages of a locked session, each with a time later than that of the one before."""
        if not messages:
            return []
        counters = await self._counters_of(session.id)
        last, timed = counters.last_message_at, dict[str, SessionMessage]()
        for message in messages:
            if message.id not in timed:
                time = message.created_at
                last = time if last is None or time > last else last + _TICK
                if time is not last or message.session_id != session.id:
                    message = replace(message, session_id=session.id, created_at=last)  # noqa: PLW2901 - as it is stored
                timed[message.id] = message
        rows = [self._codecs.message.row(message) for message in timed.values()]
        new: set[str] = set()
        for start in range(0, len(rows), _BUNDLE):
            new.update(await self._lane.bundle(_ADD_MESSAGE, rows[start : start + _BUNDLE]))
        added = [message for message in timed.values() if message.id in new]
        if added:
            counters.last_message_at, counters.changed = added[-1].created_at, True
        return added

    async def message(self, message_id: str, /) -> SessionMessage | None:
        """One message."""
        return await self._one(self._codecs.message, _MESSAGE, **{KEY: message_id})

    async def message_by_key(self, tenant_id: str, key: str, /) -> SessionMessage | None:
        """The message that was sent with that idempotency key."""
        # Somebody else may add it before this transaction does.
        self._lane.careful = True
        return await self._one(self._codecs.message, _BY_KEY, tenant=tenant_id, key=key)

    async def messages(
        self,
        session_id: str,
        *,
        after: tuple[datetime, str] | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int,
    ) -> Sequence[SessionMessage]:
        """In order of time: the first after a pair, or the last before a pair; without either the
        last ones."""
        query, cursor = _LAST, after or before
        values: dict[str, Any] = {"session": session_id, "most": limit}
        if cursor is not None:
            query = _BEFORE if after is None else _AFTER
            values |= {"cursor_time": cursor[0], "cursor_id": cursor[1]}
        found = await self._list(self._codecs.message, self._run, query, **values)
        return found[::-1] if after is None else found

    async def steering_messages(self, execution_id: str, /) -> Sequence[SessionMessage]:
        """User messages sent to be seen by that running execution."""
        said = await self._all(self._codecs.message, _SPOKEN_TO, execution=execution_id)
        return [message for message in said if message.metadata.get("steers") is True]

    async def append(
        self, session: Session | JournalHead, occurrences: Sequence[Occurrence]
    ) -> Sequence[StoredEntry]:
        """Add the messages of these to a locked session, and their entries to its journal."""
        notes = [it.note.message for it in occurrences if it.note is not None]
        messages = {message.id: message for message in await self.add_messages(session, notes)}
        entries = [it for one in occurrences if (it := one.with_message(messages)) is not None]
        if not entries:
            return []
        counters = await self._counters_of(session.id)
        numbered = enumerate(entries, counters.last_seq + 1)
        added = [_stored_entry(session, entry, seq) for seq, entry in numbered]
        rows = [self._codecs.entry.row(without_repetition(entry)) for entry in added]
        for start in range(0, len(rows), _BUNDLE):
            await self._lane.add_all(_ADD_ENTRY, rows[start : start + _BUNDLE])
        counters.last_seq, counters.changed = added[-1].seq, True
        self._tell(session_topic(session.id))
        return added

    async def entries_after(
        self, session_id: str, seq: int, *, limit: int
    ) -> Sequence[StoredEntry]:
        """The log from behind that number on; a damaged event is logged and replaced."""
        rows = await self._run(_EVENTS_AFTER, session=session_id, after=seq, most=limit)
        return [self._event(row, session_id) for row in rows]

    def _event(self, row: Row, session_id: str) -> StoredEntry:
        try:
            return with_whole_payload(self._codecs.entry.record(row))
        except DamagedDataError as fault:
            logger.error("replaced in the log of session %s: %s", session_id, fault)
            # Readers count on numbers without gaps, so that one row costs them one event only.
            return StoredEntry(
                tenant_id="",
                session_id=session_id,
                seq=row[_SEQ_AT],
                type=EventType.EVENT_DAMAGED,
                payload={},
                created_at=datetime.fromtimestamp(0, UTC),
            )

    async def entry_range(self, session_id: str, /) -> tuple[int, int]:
        """The oldest number that is still there and the newest; (1, 0) if nothing was logged."""
        await self.write_counters()
        rows = await self._run(_RANGE, **{KEY: session_id})
        if not rows:
            return 1, 0
        newest, oldest = rows[0]
        return (newest + 1 if oldest is None else oldest), newest


def _stored_entry(session: Session | JournalHead, occurrence: Occurrence, seq: int) -> StoredEntry:
    payload = occurrence.payload or {}
    return StoredEntry(
        tenant_id=session.tenant_id,
        session_id=session.id,
        seq=seq,
        type=occurrence.type,
        payload=payload,
        created_at=occurrence.at,
        execution_id=occurrence.execution_id,
        message_id=payload.get("message_id"),
    )
