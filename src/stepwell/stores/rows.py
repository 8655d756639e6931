"""What all rows share: how a statement is run, a record stored and found."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import (
    BindParameter,
    ClauseElement,
    ColumnClause,
    ColumnElement,
    Insert,
    Table,
    Update,
    bindparam,
    insert,
    literal_column,
    select,
    tuple_,
    update,
)

from stepwell.sessions.records import (
    ApiKeyRecord,
    Execution,
    Session,
    SessionMessage,
    Snapshot,
    StepIntent,
    StoredEntry,
    WorkerRecord,
)
from stepwell.stores import tables
from stepwell.stores.codec import Record, RecordCodec, bind_value, is_uuid, time_reader
from stepwell.stores.connection import DatabaseConnection, Row
from stepwell.stores.search_turns import SEARCH_SECONDS
from stepwell.stores.types import SQLITE

logger = logging.getLogger("stepwell.stores")


class Codecs(Struct, frozen=True, eq=False):
    """How every kind of record stands in one database."""

    session: RecordCodec[Session]
    message: RecordCodec[SessionMessage]
    execution: RecordCodec[Execution]
    snapshot: RecordCodec[Snapshot]
    entry: RecordCodec[StoredEntry]
    intent: RecordCodec[StepIntent]
    key: RecordCodec[ApiKeyRecord]
    worker: RecordCodec[WorkerRecord]
    time: Callable[[Any], datetime]
    """A time as the driver gave it."""

    @classmethod
    def of(cls, dialect: str) -> "Codecs":
        """Those of that database."""
        return cls(
            session=RecordCodec(Session, tables.sessions, dialect),
            message=RecordCodec(SessionMessage, tables.messages, dialect),
            execution=RecordCodec(Execution, tables.executions, dialect),
            snapshot=RecordCodec(Snapshot, tables.snapshots, dialect),
            entry=RecordCodec(StoredEntry, tables.journal, dialect),
            intent=RecordCodec(StepIntent, tables.step_intents, dialect),
            key=RecordCodec(ApiKeyRecord, tables.api_keys, dialect),
            worker=RecordCodec(WorkerRecord, tables.workers, dialect),
            time=time_reader(dialect),
        )


class Rows:
    """A transaction's access to one lane."""

    def __init__(
        self, lane: DatabaseConnection, codecs: Codecs, tell: Callable[[str], None]
    ) -> None:
        self._lane = lane
        self._codecs = codecs
        self._tell = tell

    def _run(self, statement: ClauseElement, **values: Any) -> Awaitable[list[Row]]:
        return self._lane.rows(statement, self._bind(values))

    async def _scan(self, statement: ClauseElement, **values: Any) -> list[Row]:
        return await self._lane.scan(statement, self._bind(values))

    async def _scan_constant(self, statement: ClauseElement, **values: Any) -> list[Row]:
        return await self._lane.scan(statement, self._bind(values), keep=True)

    async def _search(self, statement: ClauseElement, **values: Any) -> list[Row]:
        return await self._lane.search(statement, self._bind(values), SEARCH_SECONDS)

    def _bind(self, values: dict[str, Any]) -> dict[str, Any]:
        dialect = self._lane.dialect
        return {name: bind_value(value, dialect) for name, value in values.items()}

    def _may_exist(self, id: str) -> bool:
        """Whether the database can compare it with ids: PostgreSQL refuses what is not a UUID."""
        return self._lane.dialect == SQLITE or is_uuid(id)

    async def _one(
        self, codec: RecordCodec[Record], statement: ClauseElement, **values: Any
    ) -> Record | None:
        rows = await self._run(statement, **values)
        return codec.record(rows[0]) if rows else None

    async def _all(
        self, codec: RecordCodec[Record], statement: ClauseElement, **values: Any
    ) -> list[Record]:
        return codec.records(await self._run(statement, **values))

    async def _list(
        self,
        codec: RecordCodec[Record],
        fetch: Callable[..., Awaitable[list[Row]]],
        statement: ClauseElement,
        **values: Any,
    ) -> list[Record]:
        """A list that people look at, of ``most`` records: a row that does not fit is logged and
        left out, and the next one takes its place, so that a page is as long as it would be."""
        wanted = asked = values["most"]
        while True:
            rows = await fetch(statement, **{**values, "most": asked})
            found, faults = codec.sound_records(rows)
            if len(found) >= wanted or len(rows) < asked:
                break
            asked = wanted + 2 * len(faults)
        for fault in faults:
            logger.error("left out of a list: %s", fault)
        return found[:wanted]


KEY = "row_key"
"""The name of the bound id: names of columns are taken by what is set."""


def by_id(table: Table) -> ColumnElement[bool]:
    """The row with the id that goes along as ``row_key``."""
    return table.c.id == bindparam(KEY)


def literally(sql: str) -> Any:
    """Words of SQL as they are: a partial index serves conditions with literal words only."""
    words: ColumnClause[Any] = literal_column(sql)
    return words


def parameter(name: str) -> Any:
    """A value that goes along under that name."""
    value: BindParameter[Any] = bindparam(name)
    return value


def records_of(table: Table) -> Any:
    """A query for all columns, in the order of the record's fields."""
    return select(*tables.fields_of(table))


def insert_into(table: Table) -> Insert:
    """The insertion of whole records."""
    return insert(table)


def update_all(table: Table, but: Sequence[str]) -> Update:
    """Sets all columns but these; without a condition yet."""
    names = [column.name for column in table.c if column.name not in {"id", "tenant_id", *but}]
    return update(table).values({name: column_parameter(table, name) for name in names})


def column_parameter(table: Table, column: str, name: str | None = None) -> Any:
    """A value of that column, under the column's name or another."""
    return bindparam(name or column, type_=table.c[column].type)


def before(table: Table, time: str) -> ColumnElement[bool]:
    """Rows before the pair of a time and an id that goes along as ``cursor_time, cursor_id``."""
    return tuple_(table.c[time], table.c.id) < _cursor(table, time)


def after(table: Table, time: str) -> ColumnElement[bool]:
    """Rows after such a pair."""
    return tuple_(table.c[time], table.c.id) > _cursor(table, time)


def _cursor(table: Table, time: str) -> Any:
    return tuple_(
        column_parameter(table, time, "cursor_time"), column_parameter(table, "id", "cursor_id")
    )
