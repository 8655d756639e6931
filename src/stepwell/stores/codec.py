"""Records to rows and back. A row that does not fit its record is an error, never a wrong value."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Boolean, Column, Table, Text

from stepwell.errors import SerializationError
from stepwell.journal.json_text import json_text, whole_characters
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.packing import packed, packed_id, unpacked, unpacked_id
from stepwell.stores.tables import fields_of, length_of
from stepwell.stores.types import (
    SQLITE,
    JsonText,
    PackedId,
    PackedJson,
    PackedText,
    UtcTime,
    microseconds_of,
    time_of,
)

Record = TypeVar("Record", bound=msgspec.Struct)
Convert = Callable[[Any], Any]


def clean_text(text: str) -> str:
    """What both databases can keep: half characters and NUL are replaced.

    >>> clean_text("a\\x00b")
    'a\ufffdb'
    """
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    return text if text.isascii() else whole_characters(text)


def json_of(value: Any) -> str:
    """A value as JSON; half characters are replaced. Raises ``SerializationError``."""
    try:
        return json_text(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"the database keeps JSON only: {error}") from None


def written(value: Any, dialect: str) -> Any:
    """A plain value, such as a bound of a query, as the driver takes it."""
    if isinstance(value, datetime):
        return microseconds_of(value) if dialect == SQLITE else value
    if isinstance(value, Enum):
        return value.value
    return clean_text(value) if isinstance(value, str) else value


def stored_id(id: str) -> bytes:
    """An id as a column of packed ids has it."""
    return packed_id(clean_text(id))


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


def _truth(value: Any) -> Any:
    # SQLite keeps numbers; any but these two are left for the record to refuse.
    return value == 1 if value in {0, 1} else value


class RecordCodec(Generic[Record]):
    """How one kind of record is written to and read from its table."""

    def __init__(self, kind: type[Record], table: Table, dialect: str) -> None:
        self._kind = kind
        self._table = table.name
        self.names = tuple(kind.__struct_fields__)
        columns = [table.c[name] for name in self.names]
        if len(columns) != len(fields_of(table)):
            raise TypeError(f"{table.name} and {kind.__name__} have other fields")
        self._packed = [
            (column.name, length_of(column))
            for column in columns
            if isinstance(column.type, PackedText | PackedJson)
        ]
        self._writers = [(column.name, _writer(column, dialect)) for column in columns]
        self._readers = [
            (place, convert)
            for place, column in enumerate(columns)
            if (convert := _reader(column, dialect)) is not None
        ]

    def values(self, record: Record) -> dict[str, Any]:
        """By column, as the driver takes them."""
        values = {
            name: None if (value := getattr(record, name)) is None else write(value)
            for name, write in self._writers
        }
        for name, length in self._packed:
            text: Any = values[name]
            values[name] = packed(text)
            if length is not None:
                values[length] = len(text)
        return values

    def record(self, row: Sequence[Any]) -> Record:
        """The record that a row of all columns holds, in the order of ``names``."""
        values = list(row)
        try:
            for place, read in self._readers:
                if values[place] is not None:
                    values[place] = read(values[place])
            return msgspec.convert(self._present(values), self._kind)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise DamagedDataError(
                f"a row of {self._table} ({self.names[0]} {values[0]!r}) does not fit: {error}. It "
                "was changed by something else or is damaged; restore it from a backup"
            ) from error

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

    def _present(self, values: Sequence[Any]) -> Mapping[str, Any]:
        return dict(zip(self.names, values, strict=True))


def time_reader(dialect: str) -> Callable[[Any], datetime]:
    """How a time is read that the driver gave."""
    return time_of if dialect == SQLITE else _utc


def _writer(column: Column[Any], dialect: str) -> Convert:
    if isinstance(column.type, UtcTime):
        return microseconds_of if dialect == SQLITE else _as_is
    if isinstance(column.type, JsonText | PackedJson):
        return json_of
    if isinstance(column.type, PackedId):
        return stored_id
    return _text if isinstance(column.type, Text | PackedText) else _as_is


def _reader(column: Column[Any], dialect: str) -> Convert | None:
    if isinstance(column.type, UtcTime):
        return time_reader(dialect)
    if isinstance(column.type, JsonText):
        return msgspec.json.decode if dialect == SQLITE else None
    if isinstance(column.type, PackedJson):
        return _unpacked_json
    if isinstance(column.type, PackedText | PackedId):
        return unpacked if isinstance(column.type, PackedText) else unpacked_id
    if isinstance(column.type, Boolean) and dialect == SQLITE:
        return _truth
    return None


def _unpacked_json(stored: bytes) -> Any:
    return msgspec.json.decode(unpacked(stored))


def _as_is(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    if type(value) is str:
        return clean_text(value)
    return value.value if isinstance(value, Enum) else value
