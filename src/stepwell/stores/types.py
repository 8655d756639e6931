"""Column types: how ids, times and documents stand in each database.

Values are converted by ``codec``, once, before they reach SQLAlchemy: these types only name the
column's type.
"""

from typing import Any

from sqlalchemy import Dialect, Text
from sqlalchemy.dialects.postgresql import JSON, JSONB, TIMESTAMP, UUID
from sqlalchemy.types import TypeDecorator, TypeEngine

POSTGRESQL = "postgresql"
SQLITE = "sqlite"


class _PerDatabase(TypeDecorator[Any]):
    """Text in SQLite, a type of its own in PostgreSQL."""

    impl = Text
    cache_ok = True
    in_postgresql: TypeEngine[Any] = Text()

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column type of that database."""
        of_its_own = dialect.name == POSTGRESQL
        return dialect.type_descriptor(self.in_postgresql if of_its_own else Text())


class Id(_PerDatabase):
    """An id that ``stepwell.ids.new_id`` or ``sessions.ids.derived_id`` made: a UUID."""

    cache_ok = True
    in_postgresql = UUID(as_uuid=False)


class UtcTime(_PerDatabase):
    """A time to the microsecond: ``timestamptz``, or ISO 8601 text in UTC that sorts by time."""

    cache_ok = True
    in_postgresql = TIMESTAMP(timezone=True)


class JsonDocument(_PerDatabase):
    """JSON that a query can look into."""

    cache_ok = True
    in_postgresql = JSONB()


class ExactDocument(_PerDatabase):
    """JSON that comes back to the letter: ``jsonb`` would rewrite its numbers and the order of its
    keys, and the checksum of a state is over the exact text."""

    cache_ok = True
    in_postgresql = JSON()
