"""A database with executions, and worker processes on it that can be killed and frozen."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import SystemClock
from stepwell.ids import new_id
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.ports import Jobs, Store, Transaction
from stepwell.sessions.records import Execution, Session
from stepwell.sessions.settings import SessionSettings
from stepwell.stores.database_url import open_store
from stepwell.worker.jobs import PolledJobs
from tests.integration.worker import worker_process

PATIENT = {"lease_seconds": 60.0, "heartbeat_seconds": 1.0, "poll_seconds": 0.2}
"""No lease runs out by itself, however slow the machine is. Polls and heartbeats are frequent."""

BRIEF = {"lease_seconds": 3.0, "heartbeat_seconds": 1.0, "poll_seconds": 0.2}
"""The lease of a worker that the test kills or freezes runs out soon."""

ENOUGH_SECONDS = 90.0
"""How long a test waits for what has to happen, before it fails."""

CLOCK = SystemClock()

# Workers are forked off a process that has loaded everything: a second each is saved.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "pytest",
        "alembic.command",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite.aiosqlite",
        "stepwell.stores.postgres.postgres_store",
        "stepwell.stores.sqlite.sqlite_store",
        "stepwell.worker.worker",
        "tests.integration.worker.bench_of_workers",
    ]
)


class Noted(Struct, frozen=True):
    """A line of the witness."""

    what: str
    id: str
    attempt: int
    step: int
    pid: int
    at: float


class Place:
    """A database, its queue, and the witness of what runners did."""

    def __init__(self, url: str, store: Store, witness: Path) -> None:
        self.url = url
        self.store = store
        self.jobs: Jobs = PolledJobs()
        self.witness = witness

    async def send(
        self,
        count: int = 1,
        *,
        steps: int = 1,
        seconds: float = 0.0,
        session: str | None = None,
        agent: str = "steps",
        **more: object,
    ) -> list[str]:
        """Executions in one session, with their job in the transaction; their ids in order."""
        now = CLOCK.now()
        ids = [new_id() for _ in range(count)]
        session_id = session or new_id()

        async def add(tx: Transaction) -> None:
            if await tx.session(session_id, lock=True) is None:
                await tx.add_session(_session(session_id))
            for place, id in enumerate(ids):
                at = now + timedelta(microseconds=place)
                given = {"steps": steps, "seconds": seconds, **more}
                await tx.add_execution(
                    replace(_execution(id, session_id, given, at), agent_type=agent)
                )
            await self.jobs.enqueue(tx, (await tx.unfinished(session_id))[0].id)

        await self.store.write(add, name="send")
        return ids

    async def get(self, execution_id: str) -> Execution:
        """The row."""
        found = await self.store.read(lambda tx: tx.execution(execution_id))
        assert found is not None
        return found

    async def lease_of(self, execution_id: str) -> datetime | None:
        """Until when its worker has a lease."""
        worker_id = (await self.get(execution_id)).worker_id
        worker = await self.store.read(lambda tx: tx.worker(worker_id or ""))
        return None if worker is None else worker.lease_until

    async def until_leased(self, execution_id: str, until: datetime) -> None:
        """Wait until the lease lasts until then."""
        async with asyncio.timeout(ENOUGH_SECONDS):
            while await self.lease_of(execution_id) != until:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def until_renewed(self, execution_id: str) -> None:
        """Wait until the lease is another one."""
        before = await self.lease_of(execution_id)
        async with asyncio.timeout(ENOUGH_SECONDS):
            while await self.lease_of(execution_id) == before:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def until(
        self, execution_id: str, which: Callable[[Execution], bool], seconds: float = ENOUGH_SECONDS
    ) -> Execution:
        """The row, once it is so."""
        async with asyncio.timeout(seconds):
            # Another process tells nothing, so it is looked for.
            while not which(found := await self.get(execution_id)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return found

    async def all_over(self, ids: list[str], seconds: float = ENOUGH_SECONDS) -> list[Execution]:
        """The rows, once all are over."""
        return [await self.until(id, lambda found: found.status.is_terminal, seconds) for id in ids]

    async def all_finished(
        self, ids: list[str], seconds: float = ENOUGH_SECONDS
    ) -> list[Execution]:
        """The same, and the witness knows: a runner notes the end after its commit."""
        rows = await self.all_over(ids, seconds)
        async with asyncio.timeout(seconds):
            while not {n.id for n in self.noted("finished")} >= set(ids):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return rows

    def noted(self, what: str | None = None, id: str | None = None) -> list[Noted]:
        """What the witness saw."""
        if not self.witness.exists():
            return []
        lines = [line.split("\t") for line in self.witness.read_text().splitlines()]
        seen = [Noted(w, i, int(a), int(s), int(p), float(t)) for w, i, a, s, p, t in lines]
        return [n for n in seen if what in {None, n.what} and id in {None, n.id}]

    async def noted_soon(
        self, what: str, id: str, count: int = 1, seconds: float = ENOUGH_SECONDS
    ) -> Noted:
        """The nth note of that kind about that execution, waited for."""
        async with asyncio.timeout(seconds):
            while len(found := self.noted(what, id)) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found[count - 1]


@asynccontextmanager
async def place_at(url: str, folder: Path) -> AsyncIterator[Place]:
    """The database at that address."""
    store = await open_store(url)
    try:
        yield Place(url, store, folder / "witness.txt")
    finally:
        await store.close()


@contextmanager
def workers(place: Place, count: int = 1, **settings: object) -> Iterator[list["WorkerProcess"]]:
    """Worker processes for the length of a block; none is left behind."""
    started = [WorkerProcess(place, settings) for _ in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.end()


class WorkerProcess:
    """One worker of ``worker_process`` on a place."""

    def __init__(self, place: Place, settings: dict[str, object]) -> None:
        self._ours, theirs = FORKS.Pipe()
        self._process = FORKS.Process(
            target=worker_process.work,
            args=(place.url, place.witness, {**PATIENT, **settings}, theirs),
        )
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    async def ready(self) -> "WorkerProcess":
        """Itself, once it looks for work."""
        assert await asyncio.to_thread(self._ours.recv) == "ready"
        return self

    def kill(self) -> float:
        """``kill -9``; when."""
        self._process.kill()
        self._process.join()
        return CLOCK.monotonic()

    def freeze(self) -> None:
        """It stands still."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        os.kill(self.pid, signal.SIGCONT)

    async def stopped(self) -> int | None:
        """Ask it to end; its exit code."""
        self._process.terminate()
        await asyncio.to_thread(self._process.join, ENOUGH_SECONDS)
        return self._process.exitcode

    def end(self) -> None:
        """Whatever state it is in."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._ours.close()


class SenderProcess:
    """A process that sends, as a server would, and tells the ids it got at the end."""

    def __init__(self, place: Place, sessions: int) -> None:
        self._ours, theirs = FORKS.Pipe()
        self._process = FORKS.Process(
            target=_send_elsewhere, args=(place.url, place.witness, sessions, theirs)
        )
        self._process.start()
        theirs.close()

    async def ids(self) -> list[str]:
        """What it sent, once it is through."""
        try:
            return await asyncio.to_thread(self._ours.recv)
        finally:
            self._process.join()
            self._process.close()
            self._ours.close()


def _send_elsewhere(url: str, witness: Path, sessions: int, parent: Connection) -> None:
    async def send() -> list[str]:
        async with place_at(url, witness.parent) as place:
            ids: list[str] = []
            for _ in range(sessions):
                ids += await place.send(2, steps=2, seconds=0.02)
                await asyncio.sleep(0.05)
            return ids

    parent.send(asyncio.run(send()))


def settings_of(**changes: object) -> SessionSettings:
    """Settings for a test; leases do not run out unless it says so."""
    return SessionSettings(**{**PATIENT, **changes})  # type: ignore[arg-type]


def _session(id: str) -> Session:
    now = CLOCK.now()
    return Session(
        id=id, tenant_id="t", user_id="ada", agent_type="steps", created_at=now, updated_at=now
    )


def _execution(id: str, session_id: str, given: dict[str, object], at: object) -> Execution:
    return Execution(
        id=id,
        tenant_id="t",
        agent_type="steps",
        definition_hash="",
        session_id=session_id,
        user_id="ada",
        input=given,
        status=ExecutionStatus.PENDING,
        created_at=at,  # type: ignore[arg-type]
        updated_at=at,  # type: ignore[arg-type]
    )
