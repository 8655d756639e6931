"""Rows for the conformance suite, and short ways to write and read one."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import (
    Execution,
    MessageRole,
    Session,
    SessionMessage,
    Snapshot,
    WorkerRecord,
)

Result = TypeVar("Result")

_ID_BYTES = 16
_ID_FIELDS = frozenset(
    {
        "agent_execution_id",
        "chain_id",
        "execution_id",
        "last_execution_id",
        "last_snapshot_id",
        "parent_execution_id",
        "parent_snapshot_id",
    }
)

START = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
TENANT = "tenant"


def named_id(name: str) -> str:
    """The UUID that stands for a short name; ids sort as their names do. A UUID stays as it is.

    >>> named_id("s1")
    '73310000-0000-0000-0000-000000000000'
    """
    encoded = name.encode()
    if len(encoded) > _ID_BYTES:
        return str(UUID(name))
    return str(UUID(bytes=encoded.ljust(_ID_BYTES, b"\x00")))


def name_of(id: str) -> str:
    """The name that a UUID stands for.

    >>> name_of(named_id("s1"))
    's1'
    """
    return UUID(id).bytes.rstrip(b"\x00").decode()


def _with_ids(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: named_id(value) if name in _ID_FIELDS and value is not None else value
        for name, value in fields.items()
    }


def at(seconds: float) -> datetime:
    """So long after the start."""
    return START + timedelta(seconds=seconds)


_SESSION = Session(
    id=named_id("s"),
    tenant_id=TENANT,
    user_id="ada",
    agent_type="helper",
    created_at=START,
    updated_at=START,
)
_MESSAGE = SessionMessage(
    id=named_id("m"),
    tenant_id=TENANT,
    session_id=named_id("s"),
    role=MessageRole.USER,
    content="Hello",
    created_at=START,
)
_EXECUTION = Execution(
    id=named_id("x"),
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
_ENTRY = Occurrence(type="message.sent", payload={"n": 1}, at=START)
_SNAPSHOT = Snapshot(
    id=named_id("c0"),
    tenant_id=TENANT,
    agent_execution_id=named_id("x"),
    chain_id=named_id("c0"),
    position=0,
    step_number=0,
    state_json="{}",
    created_at=START,
)


def a_session(id: str = "s", **fields: Any) -> Session:
    """A session."""
    return replace(_SESSION, id=named_id(id), **_with_ids(fields))


def a_message(id: str, session_id: str = "s", **fields: Any) -> SessionMessage:
    """Something that a user says."""
    return replace(_MESSAGE, id=named_id(id), session_id=named_id(session_id), **_with_ids(fields))


def an_execution(id: str = "x", session_id: str | None = "s", **fields: Any) -> Execution:
    """An execution that waits."""
    session_id = None if session_id is None else named_id(session_id)
    return replace(_EXECUTION, id=named_id(id), session_id=session_id, **_with_ids(fields))


def a_worker(id: str = "w", **fields: Any) -> WorkerRecord:
    """A worker."""
    return replace(_WORKER, id=id, **fields)


def an_entry(**fields: Any) -> Occurrence:
    """An entry of a journal."""
    return replace(_ENTRY, **_with_ids(fields))


def a_snapshot(id: str, position: int, **fields: Any) -> Snapshot:
    """A snapshot of execution x in a chain that begins with c0."""
    place = {"position": position, "step_number": position, "created_at": at(position)}
    document = {"state_json": f'{{"n": {position}}}'}
    return replace(_SNAPSHOT, id=named_id(id), **{**place, **document, **_with_ids(fields)})


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
            await tx.append(session, [an_entry()] * events)
        for execution in executions:
            await tx.add_execution(execution)

    await write(store, work)


async def claim_one(
    store: Store, id: str = "x", now: float = 0.0, worker: str = "w", lease: float = 10.0
) -> Execution | None:
    """That execution, if it could be claimed by a worker with so long a lease."""

    async def claim(tx: Transaction) -> Execution | None:
        await tx.add_worker(a_worker(worker, lease_until=at(now + lease)))
        claims = await tx.claim([named_id(id)], worker_id=worker, now=at(now))
        return claims[0].execution if claims else None

    return await write(store, claim)


async def status_of(store: Store, id: str) -> ExecutionStatus:
    """Where an execution stands."""
    execution = await store.read(lambda tx: tx.execution(named_id(id)))
    assert execution is not None
    return execution.status
