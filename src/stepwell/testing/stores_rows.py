"""Rows for the conformance suite, and short ways to write and read one."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from stepwell.sessions.ports import NewEvent, Store, Transaction
from stepwell.sessions.records import (
    Execution,
    ExecutionStatus,
    MessageRole,
    Session,
    SessionMessage,
    Snapshot,
    WorkerRecord,
)

Result = TypeVar("Result")

START = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
TENANT = "tenant"


def at(seconds: float) -> datetime:
    """So long after the start."""
    return START + timedelta(seconds=seconds)


_SESSION = Session(
    id="s",
    tenant_id=TENANT,
    user_id="ada",
    agent_type="helper",
    created_at=START,
    updated_at=START,
)
_MESSAGE = SessionMessage(
    id="m",
    tenant_id=TENANT,
    session_id="s",
    role=MessageRole.USER,
    content="Hello",
    created_at=START,
)
_EXECUTION = Execution(
    id="x",
    tenant_id=TENANT,
    user_id="ada",
    agent_type="helper",
    definition_hash="h",
    created_at=START,
    updated_at=START,
)
_WORKER = WorkerRecord(
    id="w", lease_until=START, started_at=START, agents=("helper",), host="here", pid=7
)
_EVENT = NewEvent(id="e", type="message.sent", payload={"n": 1}, created_at=START)
_SNAPSHOT = Snapshot(
    id="c0",
    tenant_id=TENANT,
    agent_execution_id="x",
    chain_id="c0",
    position=0,
    step_number=0,
    state_json="{}",
    created_at=START,
)


def a_session(id: str = "s", **fields: Any) -> Session:
    """A session."""
    return replace(_SESSION, id=id, **fields)


def a_message(id: str, session_id: str = "s", **fields: Any) -> SessionMessage:
    """Something that a user says."""
    return replace(_MESSAGE, id=id, session_id=session_id, **fields)


def an_execution(id: str = "x", session_id: str | None = "s", **fields: Any) -> Execution:
    """An execution that waits."""
    return replace(_EXECUTION, id=id, session_id=session_id, **fields)


def a_worker(id: str = "w", **fields: Any) -> WorkerRecord:
    """A worker."""
    return replace(_WORKER, id=id, **fields)


def an_event(id: str, **fields: Any) -> NewEvent:
    """An envelope."""
    return replace(_EVENT, id=id, **fields)


def a_snapshot(id: str, position: int, **fields: Any) -> Snapshot:
    """A snapshot of execution x in a chain that begins with c0."""
    place = {"position": position, "step_number": position, "created_at": at(position)}
    return replace(_SNAPSHOT, id=id, **{**place, "state_json": f'{{"n": {position}}}', **fields})


async def write(store: Store, work: Callable[[Transaction], Awaitable[Result]]) -> Result:
    """One transaction."""
    return await store.write(work, name="test")


async def make(
    store: Store, session: Session | None, *executions: Execution, events: int = 0
) -> None:
    """A session, executions and events in it."""

    async def work(tx: Transaction) -> None:
        if session is not None:
            await tx.add_session(session)
            await tx.append_events(session, [an_event(f"{session.id}-e{n}") for n in range(events)])
        for execution in executions:
            await tx.add_execution(execution)

    await write(store, work)


async def claimed(
    store: Store, id: str = "x", now: float = 0.0, worker: str = "w", lease: float = 10.0
) -> Execution | None:
    """That execution, if it could be claimed by a worker with so long a lease."""

    async def claim(tx: Transaction) -> Execution | None:
        await tx.add_worker(a_worker(worker, lease_until=at(now + lease)))
        claims = await tx.claim([id], worker_id=worker, now=at(now))
        return claims[0].execution if claims else None

    return await write(store, claim)


async def status_of(store: Store, id: str) -> ExecutionStatus:
    """Where an execution stands."""
    execution = await store.read(lambda tx: tx.execution(id))
    assert execution is not None
    return execution.status
