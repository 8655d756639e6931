"""The database: looked at without making, migrating or writing anything."""

import os
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from stepwell.app.config import Config, shown_database
from stepwell.app.diagnosis.findings import FROM_CLONE, Finding, broken, note, ok
from stepwell.clock import Clock
from stepwell.stores.schema_version import NEWEST, VERSION_TABLE

SAFE_SQLITE = (3, 51, 3)
CONNECT_SECONDS = 5


def database_findings(config: Config, clock: Clock) -> Iterator[Finding]:
    """Whether it can be reached, is of this version, and has the same time."""
    try:
        url = make_url(config.db)
    except (ArgumentError, ValueError):
        yield broken("database", "its address can't be read", 'db = "sqlite:///stepwell.db"')
        return
    match url.get_backend_name():
        case "sqlite":
            yield _sqlite_version()
            yield from _sqlite(Path(url.database or ""))
        case "postgresql" | "postgres":
            yield from _postgres(url, config, clock)
        case other:
            yield broken("database", f"{other} is not supported", "use sqlite or postgresql")


def _sqlite_version() -> Finding:
    shown = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info >= SAFE_SQLITE:
        return ok("sqlite", shown)
    return ok("sqlite", f"{shown}; its fault with logs before 3.51.3 is worked around")


def _sqlite(path: Path) -> Iterator[Finding]:
    if path.name in ("", ":memory:"):
        yield broken("database", "one in memory can't be used", 'db = "sqlite:///stepwell.db"')
        return
    if not path.exists():
        yield _place(path)
        return
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        fix = f"give yourself the right to write {path} and its folder"
        yield broken("database", f"{path} can't be written", fix)
        return
    try:
        yield _version(path, _sqlite_schema(path))
    except sqlite3.Error as error:
        yield broken("database", f"{path}: {error}", "name another file with db, or restore it")


def _place(path: Path) -> Finding:
    """Where a file will be made: the nearest folder that is there must let us."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not os.access(folder, os.W_OK):
        fix = "give yourself the right to write there, or set db to another place"
        return broken("database", f"{path} is not there, and {folder} can't be written", fix)
    return ok("database", f"{path} is not there yet; it is made at the first start")


def _sqlite_schema(path: Path) -> str | None:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2)
    try:
        named = connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (VERSION_TABLE,)
        ).fetchone()
        if named is None:
            return None
        row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        return None if row is None else str(row[0])
    finally:
        connection.close()


def _version(where: Path | str, found: str | None) -> Finding:
    if found == NEWEST:
        return ok("database", f"{where}, tables of version {found}")
    if found is None:
        return ok("database", f"{where} has no tables of Stepwell yet; the first start makes them")
    if found > NEWEST:
        fix = f"update Stepwell: {FROM_CLONE}"
        return broken("database", f"{where} is of version {found}, newer than {NEWEST}", fix)
    return note("database", f"{where} is of version {found}; the next start makes it {NEWEST}")


def _postgres(url: URL, config: Config, clock: Clock) -> Iterator[Finding]:
    where = shown_database(config.db)
    try:
        import psycopg
    except ModuleNotFoundError:
        fix = "pip install 'stepwell[postgres]'"
        yield broken("database", "PostgreSQL needs a package that is not installed", fix)
        return
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(address, connect_timeout=CONNECT_SECONDS) as connection:
            there = connection.execute("SELECT to_regclass(%s)", (VERSION_TABLE,)).fetchone()
            found: str | None = None
            if there is not None and there[0] is not None:
                row = connection.execute("SELECT version_num FROM agent_schema_version").fetchone()
                found = None if row is None else str(row[0])
            row = connection.execute("SELECT clock_timestamp()").fetchone()
            now = clock.now()
    except psycopg.Error as error:
        why = " ".join(str(error).split())
        yield broken("database", f"{where} does not answer: {why}", "start it, or fix db")
        return
    yield _version(where, found)
    if row is not None:
        yield clocks_finding(row[0], now, config)


def clocks_finding(database: datetime, here: datetime, config: Config) -> Finding:
    """Leases are times, so clocks must agree."""
    off = (here - database).total_seconds()
    allowed = (config.sessions.lease_seconds - config.sessions.heartbeat_seconds) / 2
    words = f"{abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} the database's"
    if abs(off) > allowed:
        fix = "run NTP on all machines, or raise lease_seconds"
        return broken("clock", f"{words}; {allowed:g} s are allowed", fix)
    return ok("clock", words)
