"""A damaged database gives a clear error, never a wrong value."""

from pathlib import Path

import pytest

from stepwell.errors import ConfigurationError
from stepwell.sessions.ports import SessionFilter, Store
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.opening import open_store
from stepwell.testing.stores_rows import TENANT, a_message, a_session, an_execution, make, write
from tests.integration.stores.databases import run_sql


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("UPDATE agent_executions SET status = 'sleeping'", "status"),
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
    with pytest.raises(DamagedDataError, match=rf"agent_executions \(id 'x'\).*{field}"):
        await store.read(lambda tx: tx.execution("x"))


@pytest.mark.parametrize(
    "change",
    [
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
        await store.read(lambda tx: tx.message("m"))
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
