"""Opens a database for commands that read or change it, without creating or migrating it.

Whoever can open the database may read all of it. Ids may be shortened to a unique prefix.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stepwell.errors import ConfigurationError
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.text import is_encodable

if TYPE_CHECKING:
    from stepwell.sessions.ports import Store, Transaction
    from stepwell.sessions.records import Execution, Session

Result = TypeVar("Result")
_AMBIGUOUS = 6
OPEN_SECONDS = 8.0
"""Seconds that a reading command waits for a database."""


def read_database(db: str, use: "Callable[[Store], Awaitable[Result]]") -> Result:
    """Open the database read-only and return the result of ``use``."""
    return asyncio.run(_use(db, use, read_only=True))


def change_database(
    db: str, use: "Callable[[Store], Awaitable[Result]]", *, bus_url: str | None
) -> Result:
    """Open the database for writing and return the result of ``use``."""
    return asyncio.run(_use(db, use, read_only=False, bus_url=bus_url))


async def _use(
    db: str,
    use: "Callable[[Store], Awaitable[Result]]",
    *,
    read_only: bool,
    bus_url: str | None = None,
) -> Result:
    async with open_database(db, read_only=read_only, bus_url=bus_url) as store:
        return await use(store)


@asynccontextmanager
async def open_database(
    db: str, *, read_only: bool, bus_url: str | None = None
) -> "AsyncGenerator[Store]":
    """Open the database. Raises ``ConfigurationError`` if it is missing or of another version."""
    from stepwell.app.config import shown_database
    from stepwell.sessions.errors import StoreUnavailableError
    from stepwell.stores.database_url import open_store
    from stepwell.stores.errors import SchemaVersionError

    _require_file(db)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            store = await open_store(db, migrate=False, read_only=read_only, bus_url=bus_url)
    except TimeoutError:
        raise ConfigurationError(
            f"the database {shown_database(db)} did not answer within {OPEN_SECONDS:g} s; start "
            "it, or set another one with --db"
        ) from None
    except SchemaVersionError as error:
        fix = _UPDATE if error.is_newer else _MAKE
        raise ConfigurationError(
            f"{shown_database(db)}: {error.fault}. {fix}; nothing was changed"
        ) from None
    except StoreUnavailableError as error:
        why = error.__cause__ or error
        raise ConfigurationError(
            f"the database {shown_database(db)} does not answer: {' '.join(str(why).split())}; "
            "start it, or set another one with --db"
        ) from None
    try:
        yield store
    finally:
        await store.close()


_UPDATE = "Update Stepwell"
_MAKE = "`stepwell run` and `stepwell serve` create and update its tables"


def _require_file(db: str) -> None:
    """Raise if the file of an SQLite database is missing: opening would create it."""
    scheme, _, path = db.partition(":///")
    if not scheme.startswith("sqlite") or not path:
        return
    file = Path(path.partition("?")[0])
    if file.is_file():
        return
    folder = (Path.cwd() / file).parent
    where = "" if file.is_absolute() else f" in {Path.cwd()}"
    if not folder.is_dir():
        where += f", nor a folder {folder}"
    raise ConfigurationError(
        f"there is no database {file}{where}; set the right one with --db, or create one: "
        'stepwell run "What time is it?"'
    )


async def find_execution(store: "Store", given: str | None) -> "Execution":
    """Find an execution by a prefix of its id, or the newest one of a session by a prefix of the
    session's id. Without an id, return the newest execution that is not a subagent's."""

    async def work(tx: "Transaction") -> "tuple[Execution, str | None]":
        id, session_id = await _resolve_id(tx, given)
        found = await tx.execution(id)
        if found is None:
            raise NotThereError("execution", id)
        return found, session_id

    execution, session_id = await store.read(work)
    if session_id is not None:
        note = f"session {session_id}: its newest execution is {execution.id}"
        click.echo(f"{note} (`stepwell sessions show` lists all)", err=True)
    return execution


async def _resolve_id(tx: "Transaction", given: str | None) -> tuple[str, str | None]:
    """Return the id of the execution, and of the session if a session was given."""
    from stepwell.stores.tables import executions, sessions

    if given is None:
        return await _newest(tx), None
    ids, of_sessions = await _ids_with_prefix(tx, executions, given), []
    if given not in ids:
        of_sessions = await _ids_with_prefix(tx, sessions, given)
    if not of_sessions:
        if not ids:
            raise RefusedError(
                f"no execution or session {given!r}; `stepwell sessions` lists sessions",
                code="execution_not_found",
            )
        return _only(ids, given, "execution"), None
    if given not in of_sessions and ids:
        # A session and its first execution are created together, so their ids start alike.
        if len(of_sessions) == len(ids) == 1 and await _newest(tx, of_sessions[0]) == ids[0]:
            return ids[0], None
        raise RefusedError(
            f"{_several(of_sessions, 'session')} and {_several(ids, 'execution')} start with "
            f"{given!r}; give more of the id",
            code="ambiguous",
        )
    session_id = _only(of_sessions, given, "session")
    return await _newest(tx, session_id), session_id


async def find_session(store: "Store", given: str) -> "Session":
    """Find a session by a prefix of its id."""

    async def work(tx: "Transaction") -> "Session":
        from stepwell.stores.tables import sessions

        ids = await _ids_with_prefix(tx, sessions, given)
        found = await tx.session(_only(ids, given, "session"))
        if found is None:
            raise NotThereError("session", given)
        return found

    return await store.read(work)


async def find_snapshot_id(store: "Store", given: str) -> str:
    """Find the id of a snapshot by a prefix."""
    from stepwell.stores.tables import snapshots

    ids = await store.read(lambda tx: _ids_with_prefix(tx, snapshots, given))
    return _only(ids, given, "snapshot")


async def _newest(tx: "Transaction", session_id: str | None = None) -> str:
    from sqlalchemy import select

    from stepwell.stores.tables import executions as table

    wanted = select(table.c.id).where(table.c.parent_execution_id.is_(None))
    if session_id is not None:
        wanted = wanted.where(table.c.session_id == session_id)
    newest = wanted.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(1)
    id = (await tx.connection.execute(newest)).scalar()
    if id is None:
        where = "on this database" if session_id is None else f"in session {session_id}"
        raise RefusedError(
            f'no executions {where} yet; try: stepwell run "What time is it?"',
            code="nothing_there",
        )
    return str(id)


async def _ids_with_prefix(tx: "Transaction", table: Any, begins: str) -> list[str]:
    """Return a few of the newest ids with that prefix, including an exact match."""
    from sqlalchemy import Text, cast, select

    if not is_encodable(begins):  # not valid UTF-8, which no database accepts
        return []
    id_text = cast(table.c.id, Text)
    wanted = select(table.c.id).where(id_text.startswith(begins, autoescape=True))
    found = await tx.connection.execute(wanted.order_by(table.c.id.desc()).limit(_AMBIGUOUS))
    return [str(id) for id in found.scalars()]


def _only(ids: list[str], given: str, what: str) -> str:
    if not ids:
        raise NotThereError(what, given)
    if given in ids or len(ids) == 1:
        return given if given in ids else ids[0]
    raise RefusedError(
        f"{_several(ids, what)} start with {given!r}; give more of the id", code="ambiguous"
    )


def _several(ids: list[str], what: str) -> str:
    """List the ids, truncated if there are many."""
    more = " and more" if len(ids) == _AMBIGUOUS else ""
    return f"{what}{'' if len(ids) == 1 else 's'} {', '.join(ids[:5])}{more}"
