"""Snapshots in their chains, and the intents of open steps."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Insert, and_, delete, exists, func, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from stepwell.sessions.errors import LostLeaseError
from stepwell.sessions.records import Snapshot, StepIntent
from stepwell.stores import tables as t
from stepwell.stores.codec import RecordCodec
from stepwell.stores.connection import Row
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.increments import compress_increment, expand_increment
from stepwell.stores.rows import (
    KEY,
    Rows,
    by_id,
    column_parameter,
    insert_into,
    literally,
    parameter,
    records_of,
)
from stepwell.stores.types import POSTGRESQL, SQLITE

_C = t.snapshots.c
_ADD = insert_into(t.snapshots)
_FIELDS = t.fields_of(t.snapshots)
_TEXT_AT = _FIELDS.index(_C.state_json)
_LARGE = 64_000
"""Characters of a document that is converted and stored beside the loop."""
_WITHOUT_TEXT = select(*_FIELDS[:_TEXT_AT], *_FIELDS[_TEXT_AT + 1 :])
_SNAPSHOT = _WITHOUT_TEXT.where(by_id(t.snapshots))
_IN_ORDER = (_C.created_at, _C.step_number, _C.position, _C.id)
_OF_ONE = _WITHOUT_TEXT.where(_C.agent_execution_id == parameter("execution"))
_OF_EXECUTION = _OF_ONE.order_by(*_IN_ORDER)
_BEHIND = tuple_(*_IN_ORDER) > tuple_(
    *(column_parameter(t.snapshots, column.name, f"after_{column.name}") for column in _IN_ORDER)
)
_LISTINGS = {
    (False, False): _OF_EXECUTION,
    (False, True): _OF_EXECUTION.limit(parameter("most")),
    (True, False): _OF_EXECUTION.where(_BEHIND),
    (True, True): _OF_EXECUTION.where(_BEHIND).limit(parameter("most")),
}
_NEWEST = _OF_ONE.order_by(*(column.desc() for column in _IN_ORDER)).limit(literally("1"))
_CHAIN = (
    select(_C.position, _C.state_json, _C.increment_zlib)
    .where(_C.chain_id == parameter("chain"), _C.position <= parameter("last"))
    .order_by(_C.position)
)
_BEHIND_IT = (
    select(_C.position)
    .where(_C.chain_id == parameter("chain"), _C.position > parameter("last"))
    .limit(literally("1"))
)


_I, _X = t.step_intents, t.executions.c
_INTENT = records_of(_I).where(_I.c.execution_id == parameter("execution"))
_DELETE_INTENT = delete(_I).where(_I.c.execution_id == parameter("execution"))
_IS_OWN = and_(
    _X.id == parameter("execution"),
    _X.attempt == parameter("attempt"),
    # By its key: see ``execution_rows``.
    func.coalesce(_X.status, literally("''")) == literally("'running'"),
)
# Locked, so that a claim that is under way is waited for and its new attempt seen.
_OWNED = (
    select(*(column_parameter(_I, column.name) for column in _I.c))
    .where(_IS_OWN)
    .with_for_update(key_share=True)
)
_CHANGED = ("step_number", "calls", "created_at", "response")
_REPLACE_INTENT = (
    update(_I)
    .where(_I.c.execution_id == parameter("execution"), exists(literally("1")).where(_IS_OWN))
    .values({name: column_parameter(_I, name) for name in _CHANGED})
    .returning(_I.c.execution_id)
)
"""For SQLite, where nobody else writes meanwhile: a third of the cost of inserting or replacing."""


def _save_intent(insert: Any) -> Insert:
    insert_into = insert(_I).from_select([column.name for column in _I.c], _OWNED)
    changed = {name: insert_into.excluded[name] for name in _CHANGED}
    return insert_into.on_conflict_do_update(
        index_elements=["execution_id"], set_=changed
    ).returning(_I.c.execution_id)


_SAVE_INTENT = {
    SQLITE: _save_intent(sqlite.insert),
    POSTGRESQL: _save_intent(postgresql.insert),
}


class SnapshotRowsMixin(Rows):
    """See ``sessions.ports.SnapshotRows``."""

    async def add_snapshot(self, snapshot: Snapshot, /) -> None:
        """A new snapshot."""
        codec = self._codecs.snapshot
        if len(snapshot.state_json) < _LARGE:
            await self._lane.rows(_ADD, snapshot_values(codec, snapshot))
        else:
            values = await asyncio.to_thread(snapshot_values, codec, snapshot)
            await self._lane.scan(_ADD, values, keep=True)

    async def snapshot(self, snapshot_id: str, /) -> Snapshot | None:
        """One snapshot, with an empty ``state_json``."""
        found = self._without_texts(await self._run(_SNAPSHOT, **{KEY: snapshot_id}))
        return found[0] if found else None

    async def newest_snapshot(self, execution_id: str, /) -> Snapshot | None:
        """The last of ``snapshots``."""
        found = self._without_texts(await self._run(_NEWEST, execution=execution_id))
        return found[0] if found else None

    async def snapshots(
        self, execution_id: str, /, *, after: Snapshot | None = None, limit: int | None = None
    ) -> Sequence[Snapshot]:
        """Those of an execution in order, with an empty ``state_json``: all, or the first ``limit``
        behind ``after``."""
        values: dict[str, Any] = {"execution": execution_id}
        if after is not None:
            values |= {f"after_{column.name}": getattr(after, column.name) for column in _IN_ORDER}
        if limit is not None:
            values["most"] = limit
        query = _LISTINGS[after is not None, limit is not None]
        return self._without_texts(await self._scan_constant(query, **values))

    def _without_texts(self, rows: Sequence[Row]) -> list[Snapshot]:
        return self._codecs.snapshot.records(
            [(*row[:_TEXT_AT], "", *row[_TEXT_AT:]) for row in rows]
        )

    async def chain(self, snapshot: Snapshot, /) -> Sequence[str]:
        """The documents from the whole one that begins its chain up to the snapshot."""
        place = {"chain": snapshot.chain_id, "last": snapshot.position}
        rows = await self._scan_constant(_CHAIN, **place)
        if [row[0] for row in rows] != list(range(snapshot.position + 1)):
            raise DamagedDataError(
                f"snapshot {snapshot.id!r} can't be read: of the {snapshot.position + 1} documents "
                f"of its chain {len(rows)} are there. Go on from another, or restore a backup"
            )
        if sum(len(row[1] or row[2]) for row in rows) < _LARGE:
            return [_document(snapshot, row) for row in rows]
        return await asyncio.to_thread(lambda: [_document(snapshot, row) for row in rows])

    async def is_end_of_chain(self, snapshot: Snapshot, /) -> bool:
        """Whether no other snapshot of its chain follows it."""
        return not await self._run(_BEHIND_IT, chain=snapshot.chain_id, last=snapshot.position)

    async def intent(self, execution_id: str, /) -> StepIntent | None:
        """The open step of an execution, or one that was stored since."""
        return await self._one(self._codecs.intent, _INTENT, execution=execution_id)

    async def save_intent(self, intent: StepIntent, attempt: int, /) -> None:
        """Add or replace it. Raises ``LostLeaseError``."""
        values = {
            **self._codecs.intent.values(intent),
            "execution": intent.execution_id,
            "attempt": attempt,
        }
        dialect, is_small = self._lane.dialect, len(intent.calls) < _LARGE
        if dialect == SQLITE and is_small and await self._lane.rows(_REPLACE_INTENT, values):
            return
        run = self._lane.rows if is_small else self._lane.scan
        if not await run(_SAVE_INTENT[dialect], values):
            raise LostLeaseError(intent.execution_id, attempt)

    async def delete_intent(self, execution_id: str, /) -> None:
        """The execution is over."""
        await self._run(_DELETE_INTENT, execution=execution_id)


def snapshot_values(codec: RecordCodec[Snapshot], snapshot: Snapshot) -> dict[str, Any]:
    """All columns of a snapshot's row. A final snapshot and the first of a chain are plain JSON, a
    step's increment is compressed."""
    values = codec.values(snapshot)
    text = values["state_json"]
    values["state_json_length"] = len(text)
    is_plain = snapshot.is_whole or snapshot.is_final
    values["increment_zlib"] = None if is_plain else compress_increment(text)
    values["state_json"] = text if is_plain else None
    return values


def _document(snapshot: Snapshot, row: Row) -> str:
    _, text, increment = row
    try:
        return expand_increment(increment) if text is None else text
    except DamagedDataError as error:
        raise DamagedDataError(
            f"snapshot {snapshot.id!r} can't be read: a document of its chain is damaged: {error}. "
            "Go on from another, or restore a backup"
        ) from error
