"""A session with a long past, written into a database before its server starts."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, MessageRole, Session, SessionMessage
from stepwell.stores.database_url import open_store

SESSION = "00000000-0000-7000-8000-000000000001"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_AT_ONCE = 500


def seed_history(database: str, messages: int) -> None:
    """So many messages in `SESSION`: four for each thing that was asked."""
    # In a thread: this one may have Playwright's loop.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, _seed(database, messages // 4)).result()


async def _seed(database: str, exchanges: int) -> None:
    store = await open_store(database)
    try:
        await store.write(_begun, name="seed")
        for first in range(0, exchanges, _AT_ONCE):
            numbers = range(first, min(exchanges, first + _AT_ONCE))

            async def add(tx: Transaction, numbers: range = numbers) -> None:
                session = await tx.session(SESSION, lock=True)
                assert session is not None
                for number in numbers:
                    await tx.add_execution(_execution(number))
                await tx.add_messages(session, [m for n in numbers for m in _exchange(n)])

            await store.write(add, name="seed")
    finally:
        await store.close()


async def _begun(tx: Transaction) -> None:
    await tx.add_session(
        Session(
            id=SESSION,
            tenant_id="default",
            user_id="dev",
            agent_type="stage",
            title="A long past",
            created_at=BEGIN,
            updated_at=BEGIN,
        )
    )


def _at(number: int) -> datetime:
    return BEGIN + timedelta(minutes=number)


def _execution(number: int) -> Execution:
    return Execution(
        id=f"x{number:05d}",
        tenant_id="default",
        agent_type="stage",
        definition_hash="seed",
        session_id=SESSION,
        user_id="dev",
        status=ExecutionStatus.COMPLETED,
        stop_reason="completed",
        output=f"Answer {number}.",
        created_at=_at(number),
        updated_at=_at(number),
        started_at=_at(number),
        completed_at=_at(number),
    )


def _exchange(number: int) -> Iterator[SessionMessage]:
    told = {"event_type": "execution.queued"}, {"event_type": "execution.started"}
    lines = (
        (MessageRole.USER, f"Question {number}?", {}),
        (MessageRole.INFO, "Execution queued", told[0]),
        (MessageRole.INFO, "Execution started", told[1]),
        (MessageRole.ASSISTANT, f"Answer **{number}**.\n\n- one\n- two", {"step_number": 1}),
    )
    for place, (role, content, metadata) in enumerate(lines):
        yield SessionMessage(
            id=f"m{number:05d}-{place}",
            tenant_id="default",
            session_id=SESSION,
            role=role,
            content=content,
            created_at=_at(number) + timedelta(seconds=place),
            agent_execution_id=f"x{number:05d}",
            metadata=metadata,
        )
