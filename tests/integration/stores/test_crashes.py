"""A process that dies in the middle of its writes leaves a consistent database."""

import asyncio
import signal
import sqlite3
import subprocess
import sys

import pytest

from stepwell.sessions.ports import Store
from stepwell.testing.stores_rows import (
    a_session,
    make,
    name_of,
    named_id,
)

# Each transaction adds two messages, three events and an execution, and only then says its number.
_WRITER = """
import asyncio, sys
from stepwell.stores.database_url import open_store
from stepwell.testing.stores_rows import (
    a_message, a_session, an_entry, an_execution, at, named_id
)

async def main(url, name):
    store = await open_store(url)
    assert "alembic" not in sys.modules, "a database of this version is opened without Alembic"
    async def one(n):
        async def work(tx):
            session = await tx.session(named_id("s"), lock=True)
            await tx.add_messages(session, [a_message(f"{name}-m{n}-{k}") for k in range(2)])
            await tx.add_execution(an_execution(f"{name}-x{n}", created_at=at(n)))
            await tx.append(session, [an_entry(payload={"by": name, "n": n})] * 3)
        await store.write(work, name="send")
        print(n, flush=True)
    async def lane(start):
        for n in range(start, 100_000, 4):
            await one(n)
    await asyncio.gather(*(lane(start) for start in range(4)))

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


@pytest.fixture
def postgres_database(own_postgres: str) -> str:
    """Not the shared one."""
    return own_postgres


def _writer(url: str, name: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, url, name], stdout=subprocess.PIPE, text=True
    )


def _told(writer: "subprocess.Popen[str]", least: int) -> set[int]:
    """Kill it once it has told of so many commits; all that it told of."""
    assert writer.stdout is not None
    told = {int(writer.stdout.readline()) for _ in range(least)}
    writer.send_signal(signal.SIGKILL)
    told |= {int(line) for line in writer.stdout.read().splitlines()}
    writer.stdout.close()
    writer.wait(90)
    return told


async def _check(store: Store, name: str, told: set[int]) -> int:
    """Every commit that was told of is there, and each one as a whole; how many there are."""
    events = await store.read(lambda tx: tx.entries_after(named_id("s"), 0, limit=100_000))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    stored = [event.payload["n"] for event in events if event.payload["by"] == name]
    numbers = set(stored)
    assert told <= numbers
    assert len(stored) == 3 * len(numbers)
    messages = await store.read(lambda tx: tx.messages(named_id("s"), limit=100_000))
    assert {name_of(m.id) for m in messages if name_of(m.id).startswith(f"{name}-")} == {
        f"{name}-m{n}-{k}" for n in numbers for k in range(2)
    }
    executions = await store.read(lambda tx: tx.executions(session_id=named_id("s"), limit=100_000))
    assert {name_of(x.id) for x in executions if name_of(x.id).startswith(f"{name}-")} == {
        f"{name}-x{n}" for n in numbers
    }
    return len(numbers)


def _check_file(url: str) -> None:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


async def test_kill_9_in_the_middle_of_writes_loses_nothing(database: str, store: Store) -> None:
    await make(store, a_session())
    told = await asyncio.to_thread(_told, _writer(database, "w"), 30)
    assert await _check(store, "w", told) >= 30
    if database.startswith("sqlite"):
        _check_file(database)
    # The file lock, and every row lock, went with the process.
    await asyncio.wait_for(make(store, a_session("after")), 90)


async def test_two_processes_that_write_at_once_do_not_starve_each_other(
    database: str, store: Store
) -> None:
    await make(store, a_session())
    writers = {name: _writer(database, name) for name in ("one", "two")}
    # The loser has to get as far as the winner got at its fiftieth.
    told = await asyncio.gather(
        *(asyncio.to_thread(_told, writer, 50) for writer in writers.values())
    )
    for name, numbers in zip(writers, told, strict=True):
        assert await _check(store, name, numbers) >= 50
