"""How times, JSON, documents and ids stand in each database."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Dialect, LargeBinary, Text
from sqlalchemy.dialects.postgresql import JSON, TIMESTAMP
from sqlalchemy.types import TypeDecorator, TypeEngine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
POSTGRESQL = "postgresql"
SQLITE = "sqlite"


def microseconds_of(time: datetime) -> int:
    """Microseconds since 1970, exactly.

    >>> microseconds_of(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC))
    1000005
    """
    return (time - _EPOCH) // _MICROSECOND


def time_of(microseconds: int) -> datetime:
    """The time that many microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


class UtcTime(TypeDecorator[datetime]):
    """A time to the microsecond: a number in SQLite, so that it sorts; ``timestamptz`` in
    PostgreSQL. Values are turned into either by ``codec``."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column type of that database."""
        if dialect.name == POSTGRESQL:
            return dialect.type_descriptor(TIMESTAMP(timezone=True))
        return dialect.type_descriptor(BigInteger())


class JsonText(TypeDecorator[Any]):
    """JSON that no query looks into: in either database exactly the text that was written."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column type of that database."""
        if dialect.name == POSTGRESQL:
            return dialect.type_descriptor(JSON())
        return dialect.type_descriptor(Text())


class PackedText(TypeDecorator[str]):
    """A document in few bytes: see ``packing``. A column of its name and ``_length`` beside it has
    the number of its characters."""

    impl = LargeBinary
    cache_ok = True


class PackedJson(TypeDecorator[Any]):
    """The same for a document that is JSON."""

    impl = LargeBinary
    cache_ok = True


class PackedId(TypeDecorator[str]):
    """An id in few bytes."""

    impl = LargeBinary
    cache_ok = True
