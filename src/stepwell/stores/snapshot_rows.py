"""Snapshots in their chains, and the tool ledger."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Insert, Table, delete, func, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from stepwell.sessions.records import LedgerCall, LedgerTurn, Snapshot
from stepwell.stores import tables as t
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.lane import Row
from stepwell.stores.packing import packed, unpacked
from stepwell.stores.rows import KEY, Rows, adding, bound, by_id, given, literally, records_of
from stepwell.stores.types import POSTGRESQL, SQLITE

_C = t.snapshots.c
_ADD = adding(t.snapshots)
_FIELDS = t.fields_of(t.snapshots)
_TEXT_AT = _FIELDS.index(_C.state_json)
_NO_TEXT = packed("")
_LARGE = 64_000
"""Characters of a document that is packed and stored beside the loop."""
_WITHOUT_TEXT = select(*_FIELDS[:_TEXT_AT], *_FIELDS[_TEXT_AT + 1 :])
_SNAPSHOT = _WITHOUT_TEXT.where(by_id(t.snapshots))
_IN_ORDER = (_C.created_at, _C.step_number, _C.position, _C.id)
_OF_ONE = _WITHOUT_TEXT.where(_C.agent_execution_id == given("execution"))
_OF_EXECUTION = _OF_ONE.order_by(*_IN_ORDER)
_BEHIND = tuple_(*_IN_ORDER) > tuple_(
    *(bound(t.snapshots, column.name, f"after_{column.name}") for column in _IN_ORDER)
)
_LISTINGS = {
    (False, False): _OF_EXECUTION,
    (False, True): _OF_EXECUTION.limit(given("most")),
    (True, False): _OF_EXECUTION.where(_BEHIND),
    (True, True): _OF_EXECUTION.where(_BEHIND).limit(given("most")),
}
_NEWEST = _OF_ONE.order_by(*(column.desc() for column in _IN_ORDER)).limit(literally("1"))
_CHAIN = (
    select(_C.position, _C.state_json)
    .where(_C.chain_id == given("chain"), _C.position <= given("last"))
    .order_by(_C.position)
)
_SIZE = (
    select(_C.position == literally("0"), func.sum(_C.state_json_length))
    .where(_C.chain_id == given("chain"))
    .group_by(_C.position == literally("0"))
)


def _of_step(table: Table) -> Any:
    return records_of(table).where(
        table.c.execution_id == given("execution"), table.c.step_number == given("step")
    )


_TURN = _of_step(t.ledger_turns)
_CALLS = _of_step(t.ledger_calls).order_by(t.ledger_calls.c.started_at, t.ledger_calls.c.call_id)


def _settled(table: Table) -> Any:
    return delete(table).where(
        table.c.execution_id == given("execution"), table.c.step_number <= given("step")
    )


_SETTLE_TURNS, _SETTLE_CALLS = _settled(t.ledger_turns), _settled(t.ledger_calls)


def _add_turn(insert: Any) -> Insert:
    return insert(t.ledger_turns).on_conflict_do_nothing()


def _save_call(insert: Any) -> Insert:
    keys = ("execution_id", "step_number", "call_id")
    adding = insert(t.ledger_calls)
    changed = {
        column.name: adding.excluded[column.name]
        for column in t.ledger_calls.c
        if column.name not in {*keys, "tenant_id"}
    }
    return adding.on_conflict_do_update(index_elements=keys, set_=changed)


_INSERTS = {SQLITE: sqlite.insert, POSTGRESQL: postgresql.insert}
_ADD_TURN = {dialect: _add_turn(insert) for dialect, insert in _INSERTS.items()}
_SAVE_CALL = {dialect: _save_call(insert) for dialect, insert in _INSERTS.items()}


class SnapshotRowsMixin(Rows):
    """See ``sessions.ports.SnapshotRows``."""

    _adds_large = False

    async def add_snapshot(self, snapshot: Snapshot, /) -> None:
        """A new snapshot."""
        values = self._codecs.snapshot.values
        if len(snapshot.state_json) < _LARGE:
            await self._lane.rows(_ADD, values(snapshot))
        else:
            self._adds_large = True
            await self._lane.scan(_ADD, await asyncio.to_thread(values, snapshot))

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
        return self._without_texts(await self._scan(query, **values))

    def _without_texts(self, rows: Sequence[Row]) -> list[Snapshot]:
        return self._codecs.snapshot.records(
            [(*row[:_TEXT_AT], _NO_TEXT, *row[_TEXT_AT:]) for row in rows]
        )

    async def chain(self, snapshot: Snapshot, /) -> Sequence[str]:
        """The documents from the whole one that begins its chain up to the snapshot."""
        rows = await self._scan(_CHAIN, chain=snapshot.chain_id, last=snapshot.position)
        if [row[0] for row in rows] != list(range(snapshot.position + 1)):
            raise DamagedDataError(
                f"snapshot {snapshot.id!r} can't be read: of the {snapshot.position + 1} documents "
                f"of its chain {len(rows)} are there. Go on from another, or restore a backup"
            )
        return await asyncio.to_thread(lambda: [_document(snapshot, row[1]) for row in rows])

    async def chain_size(self, chain_id: str, /) -> tuple[int, int]:
        """Characters of the whole document, and of all increments on it."""
        sizes = {bool(whole): int(size) for whole, size in await self._scan(_SIZE, chain=chain_id)}
        return sizes.get(True, 0), sizes.get(False, 0)

    async def ledger(
        self, execution_id: str, step_number: int, /
    ) -> tuple[LedgerTurn | None, Sequence[LedgerCall]]:
        """What is known of a step that was not stored."""
        step = {"execution": execution_id, "step": step_number}
        turn = await self._one(self._codecs.turn, _TURN, **step)
        return turn, await self._all(self._codecs.call, _CALLS, **step)

    async def add_turn(self, turn: LedgerTurn, /) -> None:
        """A response that asks for tools; one that is there already stays."""
        adding = _ADD_TURN[self._lane.dialect]
        await self._lane.rows(adding, self._codecs.turn.values(turn))

    async def save_call(self, call: LedgerCall, /) -> None:
        """A call that begins, begins again, or has its result."""
        saving = _SAVE_CALL[self._lane.dialect]
        values = self._codecs.call.values
        if len(call.result or "") < _LARGE:
            await self._lane.rows(saving, values(call))
        else:
            await self._lane.scan(saving, await asyncio.to_thread(values, call))

    async def settle(self, execution_id: str, up_to_step: int, /) -> None:
        """The steps up to that number are stored, so the ledger can forget them."""
        step = {"execution": execution_id, "step": up_to_step}
        # What made the snapshot large is in the ledger as well, and takes as long to delete.
        run = self._scan if self._adds_large else self._run
        await run(_SETTLE_CALLS, **step)
        await run(_SETTLE_TURNS, **step)


def _document(snapshot: Snapshot, stored: bytes) -> str:
    try:
        return unpacked(stored)
    except ValueError as error:
        raise DamagedDataError(
            f"snapshot {snapshot.id!r} can't be read: a document of its chain is damaged: {error}. "
            "Go on from another, or restore a backup"
        ) from error
