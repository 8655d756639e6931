"""Statements as the driver takes them, and the connection that they run on.

SQLAlchemy writes each statement once for a database; from then on only values travel, past
SQLAlchemy's own layers, which cost more than SQLite does.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

from msgspec import Struct
from sqlalchemy import ClauseElement, Dialect, Insert, SelectBase, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from stepwell.stores.codec import bind_value, is_uuid
from stepwell.stores.types import SQLITE, Id

Row = Sequence[Any]


class Prepared(Struct, frozen=True, eq=False):
    """A statement for one database: its text, and in which order or under which names its values
    go with it."""

    text: str
    names: tuple[str, ...]
    fixed: Mapping[str, Any]
    """Values that are part of the statement."""
    by_place: bool
    gives_rows: bool
    ids: tuple[str, ...] = ()
    """Values that a server compares with ids, and refuses if they are not UUIDs."""

    def values(self, given: Mapping[str, Any]) -> Any:
        """As the driver takes them."""
        if self.fixed:
            given = {**self.fixed, **given}
        if self.ids:
            # No row has an id that is not a UUID, and none is found by NULL.
            found = {name: None for name in self.ids if not _may_be_id(given[name])}
            given = {**given, **found} if found else given
        return [given[name] for name in self.names] if self.by_place else given


class Statements:
    """All statements of a database, each written when it is first used."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._prepared: dict[ClauseElement, Prepared] = {}
        self._bundles: dict[tuple[Insert, int, bool], Prepared] = {}
        self.dialect = dialect.name

    def prepare(self, statement: ClauseElement) -> Prepared:
        """That statement for this database. It is kept: give each one as a constant."""
        known = self._prepared.get(statement)
        if known is None:
            known = self._prepared[statement] = self.compile(statement)
        return known

    def prepare_if(self, keep: bool, statement: ClauseElement) -> Prepared:
        """The same, kept or not."""
        return self.prepare(statement) if keep else self.compile(statement)

    def compile(self, statement: ClauseElement) -> Prepared:
        """The same without keeping it, for statements that are put together for one use."""
        compiled: Any = statement.compile(dialect=self._dialect)
        places = getattr(compiled, "positiontup", None)
        fixed = {
            name: bind_value(value, self.dialect)
            for name, value in compiled.params.items()
            if value is not None
        }
        return Prepared(
            text=str(compiled),
            names=tuple(places if places is not None else compiled.params),
            fixed=fixed,
            by_place=places is not None,
            gives_rows=isinstance(statement, SelectBase) or bool(compiled.effective_returning),
            ids=() if isinstance(statement, Insert) else self._ids(compiled),
        )

    def _ids(self, compiled: Any) -> tuple[str, ...]:
        """What is compared with ids; inserted ones were checked by the codec."""
        if self.dialect == SQLITE:  # which compares any texts
            return ()
        return tuple(name for name, bind in compiled.binds.items() if isinstance(bind.type, Id))

    def bundle_insert(
        self, adding: Insert, rows: Sequence[Row], *, unless_there: bool = True
    ) -> tuple[Prepared, Any]:
        """One statement that adds those of the rows whose id is not there and gives their ids, and
        its values: in order, or by name. Otherwise it adds all, gives nothing, and clashes if one
        is there. The rows have their values in the order of the table's columns."""
        known = self._bundles.get((adding, len(rows), unless_there))
        if known is None:
            made = _bundle(adding, len(rows), self.dialect, unless_there)
            known = self._bundles[adding, len(rows), unless_there] = self.compile(made)
        values = list(chain.from_iterable(rows))
        if known.by_place:
            return known, values
        return known, dict(zip(_bundle_names(adding, len(rows)), values, strict=True))


def _bundle_names(adding: Insert, count: int) -> list[str]:
    return [f"{name}_{place}" for place in range(count) for name in adding.table.c.keys()]  # noqa: SIM118 - columns, not a dict


def _bundle(adding: Insert, count: int, dialect: str, unless_there: bool) -> ClauseElement:
    insert = sqlite.insert if dialect == SQLITE else postgresql.insert
    columns = adding.table.c
    rows = [
        {column.name: bindparam(f"{column.name}_{place}", type_=column.type) for column in columns}
        for place in range(count)
    ]
    all_of_them = insert(adding.table).values(rows)
    if not unless_there:
        return all_of_them
    return all_of_them.on_conflict_do_nothing(index_elements=["id"]).returning(columns.id)


def _may_be_id(value: str | None) -> bool:
    return value is None or is_uuid(value)


class DatabaseConnection(Protocol):
    """A connection in a transaction."""

    careful: bool
    """Whether rows that are added may be there already. An answer for each costs time, and
    PostgreSQL logs an error where that was not expected."""

    @property
    def dialect(self) -> str:
        """Which database it is."""
        ...

    @property
    def connection(self) -> AsyncConnection:
        """The same as SQLAlchemy knows it."""
        ...

    async def rows(self, statement: ClauseElement, values: Mapping[str, Any], /) -> list[Row]:
        """Run a statement that is quick, by its index, and fetch what it gives."""
        ...

    async def scan(
        self, statement: ClauseElement, values: Mapping[str, Any], /, *, keep: bool = False
    ) -> list[Row]:
        """The same for one that may take its time. It is put together for this one use, unless
        ``keep`` says that it is a constant."""
        ...

    async def search(
        self, statement: ClauseElement, values: Mapping[str, Any], seconds: float, /
    ) -> list[Row]:
        """The same for one that may take long: raises ``RefusedError`` after so many seconds, and
        ``SearchElsewhere`` at once if this is no connection for searches."""
        ...

    async def bundle(self, adding: Insert, rows: Sequence[Row], /) -> Collection[str]:
        """Add those of these few rows whose id is not there; gives the ids of those added. Their
        first column is the id.

        Unless it is careful, all are added without an answer: almost always none is there. If that
        clashes, the transaction is done again, carefully.
        """
        ...

    async def add_all(self, adding: Insert, rows: Sequence[Row], /) -> None:
        """Add these few rows, none of which is there."""
        ...

    async def database_bytes(self) -> int:
        """What the database takes on disk."""
        ...
