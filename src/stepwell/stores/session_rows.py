"""Sessions, their messages and their event log."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Table, and_, func, select, true, update

from stepwell.sessions.errors import NotThereError
from stepwell.sessions.ports import NewEvent, SessionFilter, session_topic
from stepwell.sessions.records import LoggedEvent, Session, SessionMessage
from stepwell.stores import tables as t
from stepwell.stores.rows import (
    KEY,
    Rows,
    adding,
    after,
    before,
    bound,
    by_id,
    given,
    literally,
    records_of,
    saving,
)
from stepwell.stores.searching import sessions_query

_TICK = timedelta(microseconds=1)

_SESSION = records_of(t.sessions).where(by_id(t.sessions))
# Weaker than FOR UPDATE, as every writer but a deleting one: rows that point to the session can be
# added meanwhile, so two that do both can't block each other.
_LOCKED = _SESSION.with_for_update(key_share=True)
_ADD = adding(t.sessions)
_SAVE = saving(t.sessions, ("created_at", "last_seq", "last_message_at")).where(by_id(t.sessions))

_ADD_MESSAGE = adding(t.messages)
_MESSAGE = records_of(t.messages).where(by_id(t.messages))
_BY_KEY = records_of(t.messages).where(
    t.messages.c.tenant_id == bound(t.messages, "tenant_id", "tenant"),
    t.messages.c.idempotency_key == bound(t.messages, "idempotency_key", "key"),
)
_OF_SESSION = records_of(t.messages).where(t.messages.c.session_id == given("session"))
_TIME_UP = (t.messages.c.created_at, t.messages.c.id)
_TIME_DOWN = (t.messages.c.created_at.desc(), t.messages.c.id.desc())
_LAST = _OF_SESSION.order_by(*_TIME_DOWN).limit(given("most"))
_BEFORE = _LAST.where(before(t.messages, "created_at"))
_FIRST = _OF_SESSION.order_by(*_TIME_UP).limit(given("most"))
_AFTER = _FIRST.where(after(t.messages, "created_at"))
_SPOKEN_TO = (
    records_of(t.messages)
    .where(t.messages.c.agent_execution_id == given("execution"))
    .where(literally("role") == literally("'user'"))
    .order_by(*_TIME_UP)
)
_NEWEST_TIME = (
    update(t.sessions)
    .where(by_id(t.sessions))
    .values(last_message_at=bound(t.sessions, "last_message_at"))
)

_ADD_EVENT = adding(t.events)
_NEWEST_SEQ = (
    update(t.sessions).where(by_id(t.sessions)).values(last_seq=bound(t.sessions, "last_seq"))
)
_EVENTS_AFTER = (
    records_of(t.events)
    .where(t.events.c.session_id == given("session"), t.events.c.seq > given("after"))
    .order_by(t.events.c.seq)
    .limit(given("most"))
)
_RANGE = select(
    t.sessions.c.last_seq,
    select(func.min(t.events.c.seq))
    .where(t.events.c.session_id == t.sessions.c.id)
    .scalar_subquery(),
).where(by_id(t.sessions))


@cache
def _counter_and_known(table: Table, column: str, count: int) -> Any:
    """The counter of a session, locked, and which of so many ids are in a table already."""
    known = and_(true(), table.c.id.in_([given(f"id_{place}") for place in range(count)]))
    return (
        select(t.sessions.c[column], table.c.id)
        .select_from(t.sessions.outerjoin(table, known))
        .where(by_id(t.sessions))
        .with_for_update(key_share=True, of=t.sessions)
    )


class SessionRowsMixin(Rows):
    """See ``sessions.ports.SessionRows``."""

    async def add_session(self, session: Session, /) -> None:
        """A new session."""
        await self._lane.rows(_ADD, self._codecs.session.values(session))

    async def session(self, session_id: str, /, *, lock: bool = False) -> Session | None:
        """The session; locked, nobody else writes to it until the transaction ends."""
        query = _LOCKED if lock else _SESSION
        return await self._one(self._codecs.session, query, **{KEY: session_id})

    async def save_session(self, session: Session, /) -> None:
        """Its fields as they are now, but for the two counters."""
        values = self._codecs.session.values(session)
        await self._lane.rows(_SAVE, {**values, KEY: session.id})

    async def sessions(
        self, which: SessionFilter, *, before: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Session]:
        """Newest first by ``(updated_at, id)``, those before that pair."""
        query, values = sessions_query(which, before, limit)
        return self._codecs.session.records(await self._scan(query, **values))

    async def add_messages(
        self, session: Session, messages: Sequence[SessionMessage]
    ) -> Sequence[SessionMessage]:
        """New messages of a locked session, each with a time later than that of the one before."""
        if not messages:
            return []
        newest, known = await self._counter(
            session, t.messages, "last_message_at", [message.id for message in messages]
        )
        last: datetime | None = self._time(newest)
        added: list[SessionMessage] = []
        for message in messages:
            if message.id in known:
                continue
            known.add(message.id)
            time = message.created_at
            last = time if last is None else max(time, last + _TICK)
            added.append(replace(message, session_id=session.id, created_at=last))
        if added:
            codec = self._codecs.message
            await self._lane.many(_ADD_MESSAGE, [codec.values(message) for message in added])
            await self._run(_NEWEST_TIME, last_message_at=last, **{KEY: session.id})
        return added

    async def message(self, message_id: str, /) -> SessionMessage | None:
        """One message."""
        return await self._one(self._codecs.message, _MESSAGE, **{KEY: message_id})

    async def message_by_key(self, tenant_id: str, key: str, /) -> SessionMessage | None:
        """The message that was sent with that idempotency key."""
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
        codec, values = self._codecs.message, {"session": session_id, "most": limit}
        if after is not None:
            return await self._all(
                codec, _AFTER, cursor_time=after[0], cursor_id=after[1], **values
            )
        if before is None:
            found = await self._all(codec, _LAST, **values)
        else:
            found = await self._all(
                codec, _BEFORE, cursor_time=before[0], cursor_id=before[1], **values
            )
        return found[::-1]

    async def steering_messages(self, execution_id: str, /) -> Sequence[SessionMessage]:
        """User messages sent to be seen by that running execution."""
        said = await self._all(self._codecs.message, _SPOKEN_TO, execution=execution_id)
        return [message for message in said if message.metadata.get("steers") is True]

    async def append_events(
        self, session: Session, events: Sequence[NewEvent]
    ) -> Sequence[LoggedEvent]:
        """Log these of a locked session under its next numbers."""
        if not events:
            return []
        last, known = await self._counter(
            session, t.events, "last_seq", [event.id for event in events]
        )
        added: list[LoggedEvent] = []
        for event in events:
            if event.id in known:
                continue
            known.add(event.id)
            last += 1
            added.append(
                LoggedEvent(
                    id=event.id,
                    tenant_id=session.tenant_id,
                    session_id=session.id,
                    seq=last,
                    type=event.type,
                    payload=event.payload,
                    created_at=event.created_at,
                    execution_id=event.execution_id,
                )
            )
        if added:
            codec = self._codecs.event
            await self._lane.many(_ADD_EVENT, [codec.values(event) for event in added])
            await self._run(_NEWEST_SEQ, last_seq=last, **{KEY: session.id})
            self._tell(session_topic(session.id))
        return added

    async def events_after(self, session_id: str, seq: int, *, limit: int) -> Sequence[LoggedEvent]:
        """The log from behind that number on."""
        return await self._all(
            self._codecs.event, _EVENTS_AFTER, session=session_id, after=seq, most=limit
        )

    async def event_range(self, session_id: str, /) -> tuple[int, int]:
        """The oldest number that is still there and the newest; (1, 0) if nothing was logged."""
        rows = await self._run(_RANGE, **{KEY: session_id})
        if not rows:
            return 1, 0
        newest, oldest = rows[0]
        return (newest + 1 if oldest is None else oldest), newest

    async def _counter(
        self, session: Session, table: Table, column: str, ids: Sequence[str]
    ) -> tuple[Any, set[str]]:
        query = _counter_and_known(table, column, len(ids))
        named = {f"id_{place}": id for place, id in enumerate(ids)}
        rows = await self._run(query, **{KEY: session.id}, **named)
        if not rows:
            raise NotThereError("session", session.id)
        return rows[0][0], {row[1] for row in rows if row[1] is not None}

    def _time(self, value: Any) -> datetime | None:
        return None if value is None else self._codecs.time(value)
