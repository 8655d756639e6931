"""The two counters of a session: from which its events are numbered and its messages timed.

They are read once per transaction, under the lock of the session's row, counted on in memory, and
written back when somebody looks, or before the commit.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import Insert, delete, select, update

from stepwell.sessions.errors import NotThereError
from stepwell.sessions.records import Session
from stepwell.stores import tables as t
from stepwell.stores.codec import Record, RecordCodec
from stepwell.stores.lane import Lane
from stepwell.stores.rows import KEY, Codecs, Rows, bound, by_id

_BUNDLE = 16
_READ = (
    select(t.sessions.c.last_seq, t.sessions.c.last_message_at)
    .where(by_id(t.sessions))
    .with_for_update(key_share=True)
)
_WRITE = (
    update(t.sessions)
    .where(by_id(t.sessions))
    .values(
        last_seq=bound(t.sessions, "last_seq"),
        last_message_at=bound(t.sessions, "last_message_at"),
    )
)
_DELETIONS: dict[Any, Any] = {
    table: delete(table).where(by_id(table)) for table in (t.messages, t.journal)
}


class Counters(Struct):
    """Those of a session whose row is locked, or was added, by this transaction."""

    last_seq: int
    last_message_at: datetime | None
    changed: bool = False


class CountedRows(Rows):
    """Rows that are numbered or timed within their session."""

    def __init__(self, lane: Lane, codecs: Codecs, tell: Callable[[str], None]) -> None:
        super().__init__(lane, codecs, tell)
        self._counters: dict[str, Counters] = {}

    def _count_from(self, session: Session) -> None:
        self._counters[session.id] = Counters(session.last_seq, session.last_message_at)

    async def _counted(self, session_id: str) -> Counters:
        known = self._counters.get(session_id)
        if known is None:
            rows = await self._run(_READ, **{KEY: session_id})
            if not rows:
                raise NotThereError("session", session_id)
            seq, time = rows[0]
            time = None if time is None else self._codecs.time(time)
            known = self._counters[session_id] = Counters(seq, time)
        return known

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

    async def _add_new(
        self,
        adding: Insert,
        codec: RecordCodec[Record],
        made: Callable[[set[str]], Sequence[tuple[str, Record]]],
    ) -> Sequence[Record]:
        """Add what ``made`` makes, each with its id, but for those that are there already.

        Almost always none is, so they are added at once; otherwise what was added is taken back,
        since the counter went on over those that are there, and made again without them.
        """
        records = made(set())
        added = await self._add(adding, codec, records)
        if len(added) == len(records):
            return [record for _, record in records]
        for stored in added.values():
            await self._run(_DELETIONS[adding.table], **{KEY: stored})
        records = made({id for id, _ in records} - added.keys())
        await self._add(adding, codec, records)
        return [record for _, record in records]

    async def _add(
        self, adding: Insert, codec: RecordCodec[Record], records: Sequence[tuple[str, Record]]
    ) -> dict[str, Any]:
        """The ids that were added, each with how it is stored."""
        rows = [codec.values(record) for _, record in records]
        ids = {row["id"]: id for row, (id, _) in zip(rows, records, strict=True)}
        added: dict[str, Any] = {}
        for start in range(0, len(rows), _BUNDLE):
            given = await self._lane.bundle(adding, rows[start : start + _BUNDLE])
            added.update((ids[row[0]], row[0]) for row in given)
        return added
