"""The two counters of a session: from which its entries are numbered and its messages timed.

They are read once per transaction, under the lock of the session's row, counted on in memory, and
written back when somebody looks, or before the commit.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import select, update

from stepwell.sessions.errors import NotThereError
from stepwell.sessions.records import Session
from stepwell.stores import tables as t
from stepwell.stores.connection import DatabaseConnection
from stepwell.stores.rows import KEY, Codecs, Rows, by_id, column_parameter

_READ = (
    select(t.sessions.c.last_seq, t.sessions.c.last_message_at)
    .where(by_id(t.sessions))
    .with_for_update(key_share=True)
)
_WRITE = (
    update(t.sessions)
    .where(by_id(t.sessions))
    .values(
        last_seq=column_parameter(t.sessions, "last_seq"),
        last_message_at=column_parameter(t.sessions, "last_message_at"),
    )
)


class Counters(Struct):
    """Those of a session whose row is locked, or was added, by this transaction."""

    last_seq: int
    last_message_at: datetime | None
    changed: bool = False


class CountedRows(Rows):
    """Rows that are numbered or timed within their session."""

    def __init__(
        self, lane: DatabaseConnection, codecs: Codecs, tell: Callable[[str], None]
    ) -> None:
        super().__init__(lane, codecs, tell)
        self._counters: dict[str, Counters] = {}

    def _count_from(self, session: Session) -> None:
        self._counters[session.id] = Counters(session.last_seq, session.last_message_at)

    async def _counters_of(self, session_id: str) -> Counters:
        known = self._counters.get(session_id)
        if known is None:
            rows = await self._run(_READ, **{KEY: session_id})
            if not rows:
                raise NotThereError("session", session_id)
            known = self._start_counting(session_id, *rows[0])
        return known

    def _start_counting(self, session_id: str, last_seq: int, last_time: Any) -> Counters:
        """Count on from there; the time is as the driver gave it."""
        time = None if last_time is None else self._codecs.time(last_time)
        counters = self._counters[session_id] = Counters(last_seq, time)
        return counters

    async def write_counters(self) -> None:
        """Before the commit, and before somebody looks: what was counted in memory."""
        for session_id, known in self._counters.items():
            if known.changed:
                await self._run(
                    _WRITE,
                    last_seq=known.last_seq,
                    last_message_at=known.last_message_at,
                    **{KEY: session_id},
                )
                known.changed = False
