"""An application without a server: a store, what takes in messages, and a worker called by hand."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.user_input import UseUserInput
from stepwell.clock import Clock, SystemClock
from stepwell.journal.status import ExecutionStatus
from stepwell.models import ModelRequest
from stepwell.sessions.attempt.runner import RunControl, Runner
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.intake.intake import Intake, NewMessage, NewSession, Sent
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import (
    Execution,
    Session,
    SessionMessage,
    StoredEntry,
    WhenBusy,
    WorkerRecord,
)
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.reader import Reader
from stepwell.stores.database_url import open_store
from stepwell.testing import ScriptedModel, call
from tests.integration.sessions.databases import sqlite_url

ADA = Principal(user_id="ada")


class NotedJobs:
    """A queue that only notes what was put into it."""

    def __init__(self) -> None:
        self.enqueued: list[str] = []

    async def enqueue(self, transaction: Transaction, execution_id: str, /) -> None:
        """Note it, with a word to whoever listens."""
        transaction.tell("work")
        self.enqueued.append(execution_id)


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def send_mail(to: str, password: SecretStr) -> str:
    """Send a mail."""
    return f"sent to {to}" if password.get_secret_value() == "s3cret-word" else "wrong password"


def talk(request: ModelRequest) -> Any:
    """A model that does what the newest message of the user says, one word per step."""
    said = [message.text for message in request.messages if message.is_user()][-1].split()
    done = 0
    for message in reversed(request.messages):
        if message.is_user():
            break
        done += message.is_tool()
    word = said[done] if done < len(said) else "done"
    match word:
        case "add":
            return call("add", a=done, b=1)
        case "ask":
            return call("user_input", question="Which city?")
        case "mail":
            return call("send_mail", to="bob", password="model-word")
        case "both":
            return [call("user_input", question="One?"), call("user_input", question="Two?")]
        case _:
            return f"Answer to {' '.join(said)}"


def talker(**options: Any) -> Agent:
    """An agent that adds, asks and mails as its user says."""
    return Agent(
        ScriptedModel(talk),
        tools=[add, send_mail],
        capabilities=[UseUserInput(), UseApprovals("send_mail")],
        **options,
    )


class FrontDesk:
    """All that a test needs."""

    def __init__(self, store: Store, agents: AgentDirectory, settings: SessionSettings) -> None:
        self.store = store
        self.agents = agents
        self.settings = settings
        self.clock: Clock = SystemClock()
        self.jobs = NotedJobs()
        self.intake = Intake(store, self.jobs, agents, settings=settings)
        self.lifecycle = Lifecycle(store, self.jobs, agents, settings=settings)
        self.reader = Reader(store)

    async def send(self, content: str, session_id: str | None = None, **fields: Any) -> Sent:
        """Ada sends a message."""
        message = NewMessage(content=content, session_id=session_id, **fields)
        return await self.intake.send_message(ADA, message)

    async def begin(self, when_busy: WhenBusy) -> Session:
        """A session without messages."""
        return await self.intake.create_session(ADA, NewSession(when_busy=when_busy))

    async def claim(
        self, execution_id: str, worker_id: str = "w", ahead: float = 0.0
    ) -> Execution | None:
        """Take an execution as a worker would, so many seconds from now."""
        now = self.clock.now() + timedelta(seconds=ahead)
        until = now + timedelta(seconds=60)

        async def claim(tx: Transaction) -> Execution | None:
            await tx.add_worker(WorkerRecord(id=worker_id, lease_until=until, started_at=now))
            claims = await tx.claim([execution_id], worker_id=worker_id, now=now)
            return claims[0].execution if claims else None

        return await self.store.write(claim, name="claim")

    async def run(self, execution_id: str) -> ExecutionStatus:
        """Have a worker run it to its end or pause."""
        claimed = await self.claim(execution_id)
        assert claimed is not None
        runner = Runner(self.store, self.jobs, self.agents, settings=self.settings)
        return await runner.run(claimed, RunControl())

    async def sent_and_run(self, content: str, session_id: str | None = None) -> Sent:
        """Send a message and run what it leads to."""
        sent = await self.send(content, session_id)
        assert sent.execution is not None
        await self.run(sent.execution.id)
        return sent

    async def execution(self, execution_id: str) -> Execution:
        """The row."""
        found = await self.store.read(lambda tx: tx.execution(execution_id))
        assert found is not None
        return found

    async def session(self, session_id: str) -> Session:
        """The row."""
        found = await self.store.read(lambda tx: tx.session(session_id))
        assert found is not None
        return found

    async def messages(self, session_id: str) -> Sequence[SessionMessage]:
        """All of a session."""
        return await self.store.read(lambda tx: tx.messages(session_id, limit=10_000))

    async def contents(self, session_id: str) -> list[str]:
        """What people read in a session, role first."""
        return [f"{it.role}: {it.content}" for it in await self.messages(session_id)]

    async def events(self, session_id: str) -> Sequence[StoredEntry]:
        """All of a session."""
        return await self.store.read(lambda tx: tx.entries_after(session_id, 0, limit=10_000))

    async def unfinished(self, session_id: str) -> Sequence[Execution]:
        """What is not over, head first."""
        return await self.store.read(lambda tx: tx.unfinished(session_id))


@asynccontextmanager
async def desk_at(
    url: str | Path, agents: dict[str, Agent] | None = None, **settings: Any
) -> AsyncIterator[FrontDesk]:
    """A desk over a database; a path means a SQLite file."""
    store = await open_store(await sqlite_url(url) if isinstance(url, Path) else url)
    try:
        directory = AgentDirectory(agents or {"talker": talker(), "other": talker(max_steps=2)})
        yield FrontDesk(store, directory, SessionSettings(**settings))
    finally:
        await store.close()
