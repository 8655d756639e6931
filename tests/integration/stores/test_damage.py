"""A damaged database gives a clear error, never a wrong value."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import ConfigurationError
from stepwell.sessions.ports import ExecutionFilter, SessionFilter, Store, Transaction
from stepwell.stores.database_url import open_store
from stepwell.stores.errors import DamagedDataError
from stepwell.testing.stores_rows import (
    TENANT,
    a_message,
    a_session,
    an_entry,
    an_execution,
    at,
    make,
    name_of,
    named_id,
    write,
)
from tests.integration.stores.databases import run_sql

X = named_id("x")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("UPDATE agent_executions SET pending = '{}'", "pending"),
        ('UPDATE agent_executions SET token_details = \'{"input": "many"}\'', "token_details"),
        ("UPDATE agent_executions SET agent_config = '[1]'", "agent_config"),
    ],
)
async def test_a_row_that_does_not_fit_is_refused_by_name(
    database: str, store: Store, change: str, field: str
) -> None:
    await make(store, a_session(), an_execution())
    run_sql(database, change)
    with pytest.raises(DamagedDataError, match=rf"agent_executions \(id '{X}'\).*{field}"):
        await store.read(lambda tx: tx.execution(X))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE agent_session_messages SET role = 'robot'",
        "UPDATE agent_session_messages SET created_at = 'yesterday'",
        "UPDATE agent_session_messages SET metadata = '{broken'",
        "UPDATE agent_session_messages SET content = x'ff00'",
        "UPDATE agent_session_messages SET created_at = 9e30",
    ],
)
async def test_sqlite_takes_any_value_but_we_do_not(sqlite_file: Path, change: str) -> None:
    url = f"sqlite:///{sqlite_file}"
    store = await open_store(url)
    await make(store, a_session())
    await write(store, lambda tx: tx.add_messages(a_session(), [a_message("m")]))
    run_sql(url, change)
    with pytest.raises(DamagedDataError, match="agent_session_messages"):
        await store.read(lambda tx: tx.message(named_id("m")))
    await store.close()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("Dear diary, " * 1000)
    with pytest.raises(DamagedDataError, match=r"notes\.db is damaged, or no SQLite"):
        await open_store(f"sqlite:///{path}")
    assert path.read_text() == "Dear diary, " * 1000


def _damage(path: Path) -> None:
    """Overwrite the later half of its pages; the tables are described in the first."""
    content = bytearray(path.read_bytes())
    for page in range(len(content) // 4096 // 2 * 4096, len(content), 4096):
        content[page : page + 200] = b"\xff" * 200
    path.write_bytes(content)


async def test_damaged_pages_are_an_error_that_names_the_file(sqlite_file: Path) -> None:
    store = await open_store(f"sqlite:///{sqlite_file}")
    for n in range(200):
        await make(store, a_session(f"s{n}", title="x" * 500))
    await store.close()
    _damage(sqlite_file)
    with pytest.raises(DamagedDataError, match=r"stepwell\.db is damaged"):
        await _all_sessions(f"sqlite:///{sqlite_file}")


async def _all_sessions(url: str) -> None:
    store = await open_store(url)
    try:
        which = SessionFilter(tenant_id=TENANT)
        await store.read(lambda tx: tx.sessions(which, limit=500))
    finally:
        await store.close()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://localhost/db", "no url", "redis://x"]
)
async def test_a_url_that_means_no_database_of_ours_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="sqlite:///"):
        await open_store(url)


async def test_a_file_nobody_may_write_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(ConfigurationError, match=r"folder/stepwell\.db can't be opened"):
        await open_store(f"sqlite:///{tmp_path}/folder/stepwell.db")


async def test_the_file_is_private_and_its_folders_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_store("sqlite:///data/deep/stepwell.db")
    await make(store, a_session())
    names = sorted(path.name for path in (tmp_path / "data" / "deep").iterdir())
    assert names == ["stepwell.db", "stepwell.db-lock", "stepwell.db-shm", "stepwell.db-wal"]
    modes = {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "data" / "deep").iterdir()}
    await store.close()
    assert modes == {"0o600"}


async def test_one_damaged_event_costs_the_log_one_event(
    database: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await make(store, a_session())
    new = [an_entry()] * 5
    logged = await write(store, lambda tx: tx.append(a_session(), new))
    run_sql(database, "UPDATE agent_journal SET payload = '[1]' WHERE seq = 3")

    found = await store.read(lambda tx: tx.entries_after(named_id("s"), 0, limit=9))

    assert [event.seq for event in found] == [1, 2, 3, 4, 5]
    assert [*found[:2], *found[3:]] == [*logged[:2], *logged[3:]]
    assert (found[2].type, found[2].payload) == ("event.damaged", {})
    assert "agent_journal" in caplog.text


# Lists that people look at

List = Callable[[Transaction, int], Awaitable[Sequence[Any]]]
S0 = named_id("s0")
ALL = SessionFilter(tenant_id=TENANT)
FOUND = SessionFilter(tenant_id=TENANT, search="talk")
BREAK_SESSION = "UPDATE agent_sessions SET metadata = '[1]' WHERE id = '{id}'"
BREAK_EXECUTION = "UPDATE agent_executions SET input = '[1]' WHERE id = '{id}'"
BREAK_MESSAGE = "UPDATE agent_session_messages SET metadata = '[1]' WHERE id = '{id}'"
LISTS: dict[str, tuple[str, List]] = {
    "sessions": (BREAK_SESSION, lambda tx, most: tx.sessions(ALL, limit=most)),
    "sessions with a word": (BREAK_SESSION, lambda tx, most: tx.sessions(FOUND, limit=most)),
    "executions": (BREAK_EXECUTION, lambda tx, most: tx.executions(session_id=S0, limit=most)),
    "newest executions": (
        BREAK_EXECUTION,
        lambda tx, most: tx.newest_executions(ExecutionFilter(tenant_id=TENANT), limit=most),
    ),
    "messages": (BREAK_MESSAGE, lambda tx, most: tx.messages(S0, limit=most)),
    "first messages": (
        BREAK_MESSAGE,
        lambda tx, most: tx.messages(S0, after=(at(-1), S0), limit=most),
    ),
}


async def _made_six_of_each(store: Store) -> None:
    for n in range(6):
        execution = an_execution(f"x{n}", "s0", created_at=at(n))
        await make(store, a_session(f"s{n}", title="Talk", updated_at=at(n)), execution)
    said = [a_message(f"m{n}", "s0", content=f"Talk {n}", created_at=at(n)) for n in range(6)]
    await write(store, lambda tx: tx.add_messages(a_session("s0"), said))


@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("broken", ["2", "14", "012345"])
async def test_b116_a_list_leaves_out_what_is_damaged_and_reports_it(
    database: str, store: Store, caplog: pytest.LogCaptureFixture, which: str, broken: str
) -> None:
    """It is as long as it would be: who pages takes a shorter one for the end."""
    statement, look = LISTS[which]
    await _made_six_of_each(store)
    order = [name_of(record.id) for record in await store.read(lambda tx: look(tx, 6))]
    for n in broken:
        run_sql(database, statement.format(id=named_id(f"{order[0][0]}{n}")))

    found = [name_of(record.id) for record in await store.read(lambda tx: look(tx, 4))]

    sound = [id for id in order if id[1] not in broken]
    assert found == (sound[-4:] if which == "messages" else sound[:4])
    reports = " ".join(it.getMessage() for it in caplog.records if it.levelname == "ERROR")
    ids = [named_id(f"{order[0][0]}{n}") for n in broken]
    assert all(f"(id '{id}') does not fit" in reports for id in ids)


async def test_b116_a_session_of_a_damaged_execution_is_listed_without_its_status(
    sqlite_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(f"sqlite:///{sqlite_file}")
    for n in "01":
        session = a_session(f"s{n}", last_execution_id=f"x{n}")
        await make(store, session, an_execution(f"x{n}", f"s{n}"))
    damage = f"UPDATE agent_executions SET status = 'sleeping' WHERE id = '{named_id('x0')}'"
    run_sql(f"sqlite:///{sqlite_file}", damage)

    found = await store.read(lambda tx: tx.session_statuses([S0, named_id("s1")]))

    assert found == {named_id("s1"): "pending"}
    assert repr(S0) in caplog.text
    assert "'sleeping'" in caplog.text
    await store.close()
