"""What is left after a run: rows of the database, the witness's file, every subscriber's log."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from chaos.progress import Progress
from chaos.scenario import order_fault
from chaos.witness import lines_of
from stepwell import StepwellError
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.ports import SessionFilter, Store, Transaction
from stepwell.sessions.principal import DEFAULT_TENANT
from stepwell.sessions.records import (
    Execution,
    Session,
    SessionMessage,
    StoredEntry,
)

PAGE = 500


class SubscriberLog(Struct, frozen=True):
    """What one subscriber saw of one session, in the order in which it saw it."""

    subscriber: str
    session_id: str
    seen: Sequence[tuple[int, str]]
    """Number and id of each event."""
    reconnects: int = 0
    texts: Mapping[str, str] = {}
    """By execution: what was streamed of its last step, of those that completed."""
    resets: int = 0


class Evidence(Struct, frozen=True, kw_only=True):
    """Everything that the checker looks at."""

    executions_asked: int
    seed: int
    executions: Sequence[Execution]
    sessions: Sequence[Session] = ()
    messages: Sequence[SessionMessage]
    events: Mapping[str, Sequence[StoredEntry]]
    """By session."""
    witness: Sequence[Mapping[str, Any]]
    subscribers: Sequence[SubscriberLog] = ()
    bad_snapshots: Sequence[str] = ()
    invalid_histories: Sequence[str] = ()


async def gathered(store: Store, folder: Path, *, executions: int, seed: int) -> Evidence:
    """Read it all. At least ``executions`` must have been sent; those beyond are checked too."""
    found = await store.read(_all_sessions)
    rows: list[Execution] = []
    messages: list[SessionMessage] = []
    events: dict[str, Sequence[StoredEntry]] = {}
    for session in found:
        rows.extend(await store.read(lambda tx, id=session.id: tx.executions(session_id=id)))
        messages.extend(await _messages_of(store, session.id))
        events[session.id] = await _events_of(store, session.id)
    bad, invalid = await _state_faults(store, rows)
    return Evidence(
        executions_asked=max(executions, len(Progress(folder).sent)),
        seed=seed,
        executions=rows,
        sessions=found,
        messages=messages,
        events=events,
        witness=lines_of(folder / "witness.jsonl"),
        subscribers=subscriber_logs(folder),
        bad_snapshots=bad,
        invalid_histories=invalid,
    )


def subscriber_logs(folder: Path) -> list[SubscriberLog]:
    """The logs that ``reader`` wrote: a line for each event or reconnect."""
    logs: list[SubscriberLog] = []
    for file in sorted(folder.glob("subscriber-*.jsonl")):
        seen: dict[str, list[tuple[int, str]]] = {}
        texts: dict[str, dict[str, str]] = {}
        counted: Counter[tuple[str, str]] = Counter()
        for text in file.read_text().splitlines():
            line = json.loads(text)
            session = line["session"]
            match line:
                case {"seq": seq, "id": id}:
                    seen.setdefault(session, []).append((seq, id))
                case {"execution": execution, "text": streamed}:
                    texts.setdefault(session, {})[execution] = streamed
                case _:
                    counted[session, "reset" if "reset" in line else "reconnect"] += 1
        logs.extend(
            SubscriberLog(
                file.stem,
                session,
                entries,
                counted[session, "reconnect"],
                texts.get(session, {}),
                counted[session, "reset"],
            )
            for session, entries in seen.items()
        )
    return logs


async def _all_sessions(tx: Transaction) -> list[Session]:
    found: list[Session] = []
    before = None
    while page := await tx.sessions(
        SessionFilter(tenant_id=DEFAULT_TENANT), before=before, limit=PAGE
    ):
        found.extend(page)
        before = (page[-1].updated_at, page[-1].id)
    return found


async def _messages_of(store: Store, session_id: str) -> list[SessionMessage]:
    async def read(tx: Transaction) -> list[SessionMessage]:
        found: list[SessionMessage] = []
        before = None
        while page := await tx.messages(session_id, before=before, limit=PAGE):
            found = [*page, *found]
            before = (page[0].created_at, page[0].id)
        return found

    return await store.read(read)


async def _events_of(store: Store, session_id: str) -> list[StoredEntry]:
    async def read(tx: Transaction) -> list[StoredEntry]:
        found: list[StoredEntry] = []
        while page := await tx.entries_after(session_id, found[-1].seq if found else 0, limit=PAGE):
            found.extend(page)
        return found

    return await store.read(read)


async def _state_faults(
    store: Store, executions: Sequence[Execution]
) -> tuple[list[str], list[str]]:
    """Snapshots that can't be read, and histories that a provider would refuse."""
    from stepwell.sessions.views.reader import Reader

    reader = Reader(store)
    bad: list[str] = []
    invalid: list[str] = []
    for execution in executions:
        rows = await store.read(lambda tx, id=execution.id: tx.snapshots(id))
        never_ran = execution.status is ExecutionStatus.CANCELLED and execution.attempt == 0
        if execution.status.is_terminal and not never_ran and (not rows or not rows[-1].is_final):
            bad.append(f"execution {execution.id} has no final snapshot")
        for row in rows:
            try:
                state = await reader.state_of(row.id)
            except StepwellError as error:
                bad.append(f"snapshot {row.id} of {execution.id}: {error}")
                continue
            if row.is_final and (fault := order_fault(state.messages)) is not None:
                invalid.append(f"execution {execution.id}: {fault}")
    return bad, invalid
