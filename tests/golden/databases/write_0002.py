"""Writes the databases beside it, which the migrations are tested on. Run with the code of commit
c2ba313, the last that stored packed documents, never with newer code:

    git worktree add /tmp/landed c2ba313
    cd /tmp/landed && PYTHONPATH=src:. python .../tests/golden/databases/write_0002.py .../databases

``at_0002.db.gz`` is a SQLite file; ``at_0002.copy.gz`` are the rows of a PostgreSQL database, one
block per table in the text format of COPY.
"""

import asyncio
import gzip
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from agents_0002 import CLOCK, SENT, agents

from chaos.postgres import running_postgres
from stepwell.sessions.intake import Intake, NewMessage, NewSession
from stepwell.sessions.lifecycle import Lifecycle
from stepwell.sessions.ports import Store
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import ApiKey
from stepwell.sessions.runner import RunControl, Runner
from stepwell.stores.opening import open_store
from stepwell.worker.jobs import PolledJobs

USER = Principal(user_id="ada")
TABLES = (
    "agent_api_keys",
    "agent_sessions",
    "agent_executions",
    "agent_session_messages",
    "agent_state_snapshots",
    "agent_events",
    "agent_ledger_turns",
    "agent_ledger_calls",
)


class Crash(BaseException):
    """The process ends here."""


class CrashingStore:
    """A store that dies before the write that follows the start of a tool's body."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, work: Any, /, *, name: str) -> Any:
        """The store's own, until a tool runs."""
        if SENT and name != "renew":
            raise Crash
        return await self._store.write(work, name=name)


class Writer:
    """One database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs = PolledJobs()
        self._agents = agents()
        self._intake = Intake(store, self._jobs, self._agents, clock=CLOCK)

    async def ask(self, text: str, session_id: str | None = None, **fields: Any) -> Any:
        """Send a message; nothing runs yet."""
        CLOCK.advance(1.0)
        message = NewMessage(content=text, session_id=session_id, **fields)
        return await self._intake.send_message(USER, message)

    async def run(self, execution_id: str, store: Any = None) -> None:
        """Claim an execution and run it."""
        CLOCK.advance(60.0)
        now = CLOCK.now()
        claimed = await self._store.write(
            lambda tx: tx.claim(execution_id, worker_id="w", now=now, lease_until=now), name="claim"
        )
        assert claimed is not None
        runner = Runner(store or self._store, self._jobs, self._agents, clock=CLOCK)
        await runner.run(claimed, RunControl())

    async def interrupt(self, text: str) -> Any:
        """An execution whose worker died in the middle of an external call."""
        sent = await self.ask(text)
        SENT.clear()
        try:
            await self.run(sent.execution.id, CrashingStore(self._store))
        except Crash:
            SENT.clear()
            return sent
        raise AssertionError("it did not die")

    async def write(self) -> None:
        """All of it."""
        new = NewSession(title="Grüße \U0001f600", metadata={"größe": [1, 2.5, None]})
        first = await self.ask("Grüße", new_session=new, idempotency_key="k1")
        await self.run(first.execution.id)
        second = await self.ask("And again?", first.session.id)
        await self.run(second.execution.id)
        scouted = await self.ask("Scout ahead")
        await self.run(scouted.execution.id)
        paused = await self.ask("Delete a.txt")
        await self.run(paused.execution.id)
        await self.ask("And again?", paused.session.id)
        taken_over = await self.interrupt("Write to Bob")
        await self.run(taken_over.execution.id)
        SENT.clear()
        await self.interrupt("Write to Bob")
        lifecycle = Lifecycle(self._store, self._jobs, self._agents, clock=CLOCK)
        forked = await lifecycle.fork(USER, first.execution.id, step_number=1, message="Forked")
        await self.run(forked.execution.id)
        key = ApiKey(
            id="key-1",
            tenant_id=USER.tenant_id,
            user_id="ada",
            name="ci",
            prefix="sw_abc",
            secret_hash="0f",
            created_at=CLOCK.now(),
            last_used_at=CLOCK.now(),
        )
        await self._store.write(lambda tx: tx.add_api_key(key), name="key")


async def _write(url: str) -> None:
    store = await open_store(url)
    try:
        await Writer(store).write()
    finally:
        await store.close()


def _copied(url: str) -> bytes:
    found: list[bytes] = []
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for table in TABLES:
            found.append(f"{table}\n".encode())
            with cursor.copy(f"COPY {table} TO STDOUT") as rows:
                found.extend(bytes(row) for row in rows)
            found.append(b"\\.\n")
    return b"".join(found)


def main(folder: Path) -> None:
    """Write both files."""
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "golden.db"
        asyncio.run(_write(f"sqlite:///{path}"))
        (folder / "at_0002.db.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    with running_postgres() as server:
        url = server.new_database("golden")
        asyncio.run(_write(url))
        (folder / "at_0002.copy.gz").write_bytes(gzip.compress(_copied(url), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
