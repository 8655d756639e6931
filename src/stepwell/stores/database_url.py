"""Opens the database that a URL names."""

import re
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError
from stepwell.sessions.ports import Store
from stepwell.stores.bus.redis_link import RedisLink
from stepwell.stores.bus.remote_bus import Link


async def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    migrate: bool = True,
    read_only: bool = False,
    bus_url: str | None = None,
) -> Store:
    """Open a database and bring its tables to this version.

    With ``read_only`` it is only looked into: nothing is migrated, and a file needs neither to be
    writable nor to be in a folder that is.

    ``bus_url`` is a Redis server that carries the bus instead of the database, or an address of the
    PostgreSQL server past PgBouncer, which can't carry it in transaction mode.

    ``sqlite:///file.db`` is relative to the working directory, ``sqlite:////file.db`` absolute;
    ``postgresql://user@host/db`` is a server. Raises ``ConfigurationError`` for any other URL.
    """
    clock = SystemClock() if clock is None else clock
    link = None if bus_url is None else _link(bus_url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigurationError(f"{_EXPECTED}, got {_without_password(url)}") from None
    match parsed.get_backend_name():
        case "sqlite":
            from stepwell.stores.sqlite.sqlite_store import SqliteStore

            if parsed.database in {None, "", ":memory:"}:
                raise ConfigurationError(
                    "a database in memory is lost with its process and can't be shared; "
                    "use a file, such as sqlite:///stepwell.db"
                )
            path = Path(str(parsed.database))
            if read_only:
                from stepwell.stores.sqlite.sqlite_reader import SqliteReader

                return await SqliteReader.open(path, clock=clock, migrate=False)
            return await SqliteStore.open(path, clock=clock, migrate=migrate, link=link)
        case "postgresql" | "postgres":
            from stepwell.stores.postgres.postgres_store import PostgresStore

            _require_known_parameters(parsed)
            may_migrate = migrate and not read_only
            try:
                return await PostgresStore.open(parsed, clock=clock, migrate=may_migrate, link=link)
            except ArgumentError:
                raise ConfigurationError(
                    f"the hosts and ports in the parameters of {_without_password(url)} can't be "
                    "read; give as many ports as hosts, as numbers"
                ) from None
        case _:
            raise ConfigurationError(f"{_EXPECTED}, got {_without_password(url)}")


def _link(bus_url: str) -> Link:
    if not bus_url.startswith(("postgres:", "postgresql:", "postgresql+")):
        return RedisLink(bus_url)
    from stepwell.stores.bus.postgres_link import PostgresLink

    try:
        return PostgresLink(make_url(bus_url))
    except (ArgumentError, ValueError):
        raise ConfigurationError("bus_url can't be read; write it like db") from None


def _require_known_parameters(url: URL) -> None:
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    for name in url.query:
        try:
            make_conninfo("", **{name: ""})
        except ProgrammingError:
            address = _without_password(url.render_as_string(hide_password=True))
            raise ConfigurationError(
                f"{address} has a parameter {name!r:.80}, which PostgreSQL does not know; write it "
                "as in ?sslmode=require, or leave it out"
            ) from None


_EXPECTED = "a database is sqlite:///file.db or postgresql://user@host/name"
_PARTS = re.compile(
    r"(?P<scheme>[\w+.-]*:?//)"
    r"(?:(?P<user>[^:@/?]*)(?P<password>:[^?]*)?@(?P<rest>[^@?]*)|(?P<path>[^:@?]*))"
    r"(?:\?.*)?",
    re.DOTALL,
)


def _without_password(url: str) -> str:
    """Return the URL without its password, or nothing of it if a password could be anywhere.

    >>> _without_password("mysql://ada:p@ss@host/db?password=again")
    "'mysql://ada:***@host/db'"
    >>> _without_password("ada:secret@host")
    'another URL'
    """
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return "another URL"
    if parts["user"] is None:
        return repr(parts["scheme"] + parts["path"])
    hidden = "" if parts["password"] is None else ":***"
    return repr(f"{parts['scheme']}{parts['user']}{hidden}@{parts['rest']}")
