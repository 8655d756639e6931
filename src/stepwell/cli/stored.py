"""What a database holds, for commands that read or change it: never made, never migrated.

Whoever has the database in hand may read all of it; ids may be given by how they begin.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stepwell.errors import ConfigurationError
from stepwell.sessions.errors import NotThereError, RefusedError

if TYPE_CHECKING:
    from stepwell.sessions.ports import Store, Transaction
    from stepwell.sessions.records import Execution, Session

Result = TypeVar("Result")
_AMBIGUOUS = 6
OPEN_SECONDS = 8.0
"""How long somebody who only wants to look waits for a database."""


def read_stored(db: str, use: "Callable[[Store], Awaitable[Result]]") -> Result:
    """What ``use`` reads in the database; it need not be one that may be written to."""
    return asyncio.run(_used(db, use, read_only=True))


def change_stored(db: str, use: "Callable[[Store], Awaitable[Result]]") -> Result:
    """What ``use`` gives, which may write to the database."""
    return asyncio.run(_used(db, use, read_only=False))


async def _used(db: str, use: "Callable[[Store], Awaitable[Result]]", *, read_only: bool) -> Result:
    async with opened(db, read_only=read_only) as store:
        return await use(store)


@asynccontextmanager
async def opened(db: str, *, read_only: bool) -> "AsyncGenerator[Store]":
    """The database, if it is there and of this version; raises ``ConfigurationError``."""
    from stepwell.app.config import shown_database
    from stepwell.sessions.errors import StoreUnavailableError
    from stepwell.stores.errors import SchemaVersionError
    from stepwell.stores.opening import open_store

    _require_file(db)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            store = await open_store(db, migrate=False, read_only=read_only)
    except TimeoutError:
        raise ConfigurationError(
            f"the database {shown_database(db)} did not answer within {OPEN_SECONDS:g} s; start "
            "it, or name another one with --db"
        ) from None
    except SchemaVersionError as error:
        mend = _UPDATE if error.is_newer else _MAKE
        raise ConfigurationError(
            f"{shown_database(db)}: {error.fault}. {mend}; nothing was changed"
        ) from None
    except StoreUnavailableError as error:
        why = error.__cause__ or error
        raise ConfigurationError(
            f"the database {shown_database(db)} does not answer: {' '.join(str(why).split())}; "
            "start it, or name another one with --db"
        ) from None
    try:
        yield store
    finally:
        await store.close()


_UPDATE = "Update Stepwell"
_MAKE = "`stepwell run` and `stepwell serve` make and update its tables"


def _require_file(db: str) -> None:
    """A file that is only looked into must not come to be by that."""
    scheme, _, path = db.partition(":///")
    if not scheme.startswith("sqlite") or not path:
        return
    file = Path(path.partition("?")[0])
    if not file.is_file():
        raise ConfigurationError(
            f"there is no database {file} in {Path.cwd()}; name the right one with --db, or make "
            'one: stepwell run "What time is it?"'
        )


async def find_execution(store: "Store", given: str | None) -> "Execution":
    """The execution whose id begins so; the newest that is no subagent's if none is given."""

    async def work(tx: "Transaction") -> "Execution":
        from stepwell.stores.tables import executions

        if given is None:
            id = await _newest(tx, executions)
        else:
            id = await _whole_id(tx, executions, given, "execution")
        found = await tx.execution(id)
        if found is None:
            raise NotThereError("execution", id)
        return found

    return await store.read(work)


async def find_session(store: "Store", given: str) -> "Session":
    """The session whose id begins so."""

    async def work(tx: "Transaction") -> "Session":
        from stepwell.stores.tables import sessions

        found = await tx.session(await _whole_id(tx, sessions, given, "session"))
        if found is None:
            raise NotThereError("session", given)
        return found

    return await store.read(work)


async def _newest(tx: "Transaction", table: Any) -> str:
    from sqlalchemy import select

    wanted = select(table.c.id).where(table.c.parent_execution_id.is_(None))
    newest = wanted.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(1)
    id = (await tx.connection.execute(newest)).scalar()
    if id is None:
        raise RefusedError(
            'nothing was run on this database yet; try: stepwell run "What time is it?"',
            code="nothing_there",
        )
    return str(id)


async def _whole_id(tx: "Transaction", table: Any, begins: str, what: str) -> str:
    from sqlalchemy import select

    wanted = select(table.c.id).where(table.c.id.startswith(begins, autoescape=True))
    found = await tx.connection.execute(wanted.order_by(table.c.id.desc()).limit(_AMBIGUOUS))
    ids = [str(id) for id in found.scalars()]
    if not ids:
        raise NotThereError(what, begins)
    if begins in ids or len(ids) == 1:
        return begins if begins in ids else ids[0]
    more = " and more" if len(ids) == _AMBIGUOUS else ""
    raise RefusedError(
        f"several {what}s begin with {begins!r}: {', '.join(ids[:5])}{more}; give more of the id",
        code="ambiguous",
    )
