"""A database with a session in it, runners that can be made to die at any write, and what became
of it all. For the runner's tests.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from stepwell.agent import Agent
from stepwell.clock import SystemClock
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.runner import RunControl, Runner
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.ids import derived_id
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import (
    Execution,
    MessageRole,
    Session,
    SessionMessage,
    StoredEntry,
    WorkerRecord,
)
from stepwell.sessions.settings import SessionSettings
from stepwell.stores.database_url import open_store
from tests.integration.sessions.databases import sqlite_url

SESSION = derived_id("session", 1)
CLOCK = SystemClock()


class Crash(BaseException):
    """The process ends here, for all that the code can do about it."""


class NotedJobs:
    """A queue that only notes what was enqueued."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def enqueue(self, transaction: Transaction, execution_id: str, /) -> None:
        self.ids.append(execution_id)


class CrashingStore:
    """A store whose ``nth`` write fails: before it begins, or after it has committed."""

    def __init__(self, store: Store, *, at: int | None = None, after: bool = False) -> None:
        self._store = store
        self._at = at
        self._after = after
        self.names: list[str] = []
        self.error: BaseException = Crash()
        self._at_names: tuple[str, ...] = ()

    def crash_at(self, *names: str) -> None:
        """Fail at the first write of one of these names, instead of at a number."""
        self._at_names = names

    @property
    def bus(self) -> Any:
        return self._store.bus

    async def read(self, work: Any, /) -> Any:
        return await self._store.read(work)

    async def write(self, work: Any, /, *, name: str) -> Any:
        self.names.append(name)
        dies = len(self.names) == self._at or name in self._at_names
        if dies and not self._after:
            raise self.error
        result = await self._store.write(work, name=name)
        if dies:
            raise self.error
        return result

    async def close(self) -> None:
        pass


class World:
    """One session; messages are sent and executions are run by hand."""

    def __init__(
        self, store: Store, agent: Agent, settings: SessionSettings, *, session_id: str = SESSION
    ) -> None:
        self.store = store
        self.session_id = session_id
        self.settings = settings
        self.jobs = NotedJobs()
        self.agents = AgentDirectory({"helper": agent})
        self.ahead = 0.0
        self.workers = 0
        self._sent = 0

    async def begin(self) -> None:
        now = CLOCK.now()
        session = Session(
            id=self.session_id,
            tenant_id="t",
            user_id="ada",
            agent_type="helper",
            created_at=now,
            updated_at=now,
        )
        await self.store.write(lambda tx: tx.add_session(session), name="test")

    async def send(self, text: str, *, steers: str | None = None) -> str:
        """A user's message with a pending execution, or one for a running execution."""
        self._sent += 1
        id, now = derived_id(self.session_id, "message", self._sent), CLOCK.now()
        execution_id = steers or derived_id(self.session_id, "execution", self._sent)
        message = SessionMessage(
            id=id,
            tenant_id="t",
            session_id=self.session_id,
            role=MessageRole.USER,
            content=text,
            created_at=now,
            agent_execution_id=execution_id,
            metadata={"steers": True} if steers else {},
        )
        registered = self.agents.get("helper")
        execution = Execution(
            id=execution_id,
            tenant_id="t",
            session_id=self.session_id,
            user_id="ada",
            agent_type="helper",
            definition_hash=registered.definition_hash,
            created_at=now,
            updated_at=now,
            input={"message_ids": [id]},
        )

        async def work(tx: Transaction) -> None:
            session = await tx.session(self.session_id, lock=True)
            assert session is not None
            if steers is None:
                await tx.add_execution(execution)
            await tx.add_messages(session, [message])

        await self.store.write(work, name="test")
        return execution_id

    async def claim(self, execution_id: str, *, dead: bool = False) -> Execution:
        """Claimed as a worker does; ``dead``: after the lease of the one before ran out."""
        self.ahead += 60.0 if dead else 0.0
        now = CLOCK.now() + timedelta(seconds=self.ahead)

        until = now + timedelta(seconds=30)
        # Another worker takes over from a dead one.
        self.workers += 1 if dead else 0
        worker_id = f"w{self.workers}" if self.workers else "w"

        async def work(tx: Transaction) -> Execution | None:
            await tx.add_worker(WorkerRecord(id=worker_id, lease_until=until, started_at=now))
            claims = await tx.claim([execution_id], worker_id=worker_id, now=now)
            return claims[0].execution if claims else None

        claimed = await self.store.write(work, name="test")
        assert claimed is not None, await self.execution(execution_id)
        return claimed

    async def run(
        self,
        execution_id: str,
        *,
        control: RunControl | None = None,
        store: Any = None,
        dead: bool = False,
        agents: AgentDirectory | None = None,
        settings: SessionSettings | None = None,
    ) -> ExecutionStatus:
        claimed = await self.claim(execution_id, dead=dead)
        runner = Runner(
            store or self.store,
            self.jobs,
            agents or self.agents,
            settings=settings or self.settings,
        )
        return await runner.run(claimed, control or RunControl())

    # What became of it

    async def execution(self, execution_id: str) -> Execution:
        found = await self.store.read(lambda tx: tx.execution(execution_id))
        assert found is not None
        return found

    async def messages(self, *roles: str) -> list[SessionMessage]:
        found = await self.store.read(lambda tx: tx.messages(self.session_id, limit=1000))
        return [m for m in found if not roles or m.role in roles]

    async def texts(self, *roles: str) -> list[str]:
        return [m.content for m in await self.messages(*roles)]

    async def events(self, type: str | None = None) -> list[StoredEntry]:
        found = await self.store.read(
            lambda tx: tx.entries_after(self.session_id, 0, limit=100_000)
        )
        assert [e.seq for e in found] == list(range(1, len(found) + 1))
        return [e for e in found if type in (None, e.type, e.payload.get("event_type"))]

    async def statuses(self) -> list[str]:
        return [
            e.payload["status"]
            for e in await self.events("agent.status")
            if e.payload.get("parent_execution_id") is None
        ]

    async def session(self) -> Session:
        found = await self.store.read(lambda tx: tx.session(self.session_id))
        assert found is not None
        return found


@asynccontextmanager
async def world(
    folder: Path, agent: Agent, *, settings: SessionSettings | None = None, url: str | None = None
) -> AsyncIterator[World]:
    store = await open_store(url or await sqlite_url(folder / "stepwell.db"))
    try:
        made = World(store, agent, settings or SessionSettings())
        await made.begin()
        yield made
    finally:
        await store.close()
