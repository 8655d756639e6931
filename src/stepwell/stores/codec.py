"""Records to rows and back. A row that does not fit its record is an error, never a wrong value."""

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import astuple
from sqlalchemy import Boolean, Column, Table, Text

from stepwell.errors import SerializationError
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.tables import fields_of
from stepwell.stores.types import SQLITE, ExactDocument, Id, JsonDocument, UtcTime
from stepwell.text import json_bytes, replace_half_characters

Record = TypeVar("Record", bound=msgspec.Struct)
Convert = Callable[[Any], Any]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_WITHOUT_ZONE = 26


def clean_text(text: str) -> str:
    """Replace what the databases can't keep: half characters and NUL.

    >>> clean_text("a\\x00b")
    'a\ufffdb'
    """
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    return replace_half_characters(text)


def json_of(value: Any) -> str:
    """A value as JSON; half characters and NUL are replaced. Raises ``SerializationError``.

    >>> json_of({"path": "a\\x00b"})
    '{"path":"a\\\\ufffdb"}'
    """
    try:
        text = json_bytes(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"the database keeps JSON only: {error}") from None
    return _ESCAPED_NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def iso_time(time: datetime) -> str:
    """A time as SQLite keeps it: UTC, always six digits, so that texts sort as times do.

    >>> iso_time(datetime(2026, 1, 1, tzinfo=UTC))
    '2026-01-01T00:00:00.000000Z'
    """
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    return time.isoformat(timespec="microseconds")[:_WITHOUT_ZONE] + "Z"


def is_uuid(id: str) -> bool:
    """Whether it is a UUID in the form in which every id of ours is written."""
    return _UUID.fullmatch(id) is not None


def bind_value(value: Any, dialect: str) -> Any:
    """A plain value, such as a bound of a query, as the driver takes it."""
    if isinstance(value, datetime):
        return iso_time(value) if dialect == SQLITE else value
    if isinstance(value, Enum):
        return value.value
    return clean_text(value) if isinstance(value, str) else value


class RecordCodec(Generic[Record]):
    """How one kind of record is written to and read from its table."""

    def __init__(self, kind: type[Record], table: Table, dialect: str) -> None:
        self._kind = kind
        self._table = table
        self.names = tuple(kind.__struct_fields__)
        columns = [table.c[name] for name in self.names]
        if [column.name for column in fields_of(table)] != list(self.names):
            raise TypeError(f"{table.name} and {kind.__name__} have different fields")
        writers = [_writer(column, dialect) for column in columns]
        self._texts = [place for place, write in enumerate(writers) if write is _text]
        self._writers = [
            (place, write) for place, write in enumerate(writers) if write not in (None, _text)
        ]
        self._writer_of = dict(zip(self.names, writers, strict=True))
        self._readers = [
            (place, convert)
            for place, column in enumerate(columns)
            if (convert := _reader(column, dialect)) is not None
        ]

    def row(self, record: Record) -> list[Any]:
        """The values as the driver takes them, in the order of ``names``."""
        row = list(astuple(record))
        for place in self._texts:
            value = row[place]
            # Almost always a text that can be kept as it is, or none.
            if value is not None and (
                type(value) is not str or not value.isascii() or "\x00" in value
            ):
                row[place] = _text(value)
        for place, write in self._writers:
            value = row[place]
            if value is not None:
                row[place] = write(value)
        return row

    def values(self, record: Record) -> dict[str, Any]:
        """The same by column."""
        return dict(zip(self.names, self.row(record), strict=True))

    def values_of(self, record: Record, names: Collection[str]) -> dict[str, Any]:
        """The same for these columns only."""
        values: dict[str, Any] = {}
        for name in names:
            value, write = getattr(record, name), self._writer_of[name]
            values[name] = value if value is None or write is None else write(value)
        return values

    def record(self, row: Sequence[Any]) -> Record:
        """The record that a row of all columns holds, in the order of ``names``."""
        values = list(row)
        try:
            for place, read in self._readers:
                if values[place] is not None:
                    values[place] = read(values[place])
            return msgspec.convert(dict(zip(self.names, values, strict=True)), self._kind)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise DamagedDataError(
                f"a row of {self._table.name} ({self._key(row)}) does not fit: {error}. It was "
                "changed by something else or is damaged; restore it from a backup"
            ) from error

    def _key(self, row: Sequence[Any]) -> str:
        names = [column.name for column in self._table.primary_key]
        return ", ".join(f"{name} {row[self.names.index(name)]!r}" for name in names)

    def records(self, rows: Sequence[Sequence[Any]]) -> list[Record]:
        """One for each row."""
        return [self.record(row) for row in rows]

    def sound_records(
        self, rows: Sequence[Sequence[Any]]
    ) -> tuple[list[Record], list[DamagedDataError]]:
        """One for each row that fits, and what is wrong with the others."""
        found: list[Record] = []
        faults: list[DamagedDataError] = []
        for row in rows:
            try:
                found.append(self.record(row))
            except DamagedDataError as fault:
                faults.append(fault)
        return found, faults


def time_reader(dialect: str) -> Callable[[Any], datetime]:
    """How a time is read that the driver gave."""
    return datetime.fromisoformat if dialect == SQLITE else _utc


def _writer(column: Column[Any], dialect: str) -> Convert | None:
    if isinstance(column.type, UtcTime):
        return iso_time if dialect == SQLITE else None
    if isinstance(column.type, JsonDocument):
        return json_of
    if isinstance(column.type, Id):
        return _text if dialect == SQLITE else _uuid
    return _text if isinstance(column.type, Text | ExactDocument) else None


def _reader(column: Column[Any], dialect: str) -> Convert | None:
    if dialect != SQLITE:
        return _utc if isinstance(column.type, UtcTime) else None
    if isinstance(column.type, JsonDocument):
        return msgspec.json.decode
    return _truth if isinstance(column.type, Boolean) else None


def _text(value: Any) -> Any:
    if type(value) is str:
        return clean_text(value)
    return value.value if isinstance(value, Enum) else value


def _uuid(id: str) -> str:
    if not is_uuid(id):
        raise SerializationError(
            f"the id {id!r:.80} is not a UUID, and PostgreSQL keeps ids as uuid; use an id factory "
            "that makes UUIDs, such as stepwell.ids.new_id"
        )
    return id


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


def _truth(value: Any) -> Any:
    # SQLite keeps numbers; any but these two are left for the record to refuse.
    return value == 1 if value in {0, 1} else value
