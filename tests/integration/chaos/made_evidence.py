"""Hand-made evidence of a small run in which all went well; the tests spoil it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from chaos.evidence import Evidence, SubscriberLog
from chaos.scenario import DENIED, STEPS, UNKNOWN, scenario
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import (
    Execution,
    MessageRole,
    SessionMessage,
    StoredEntry,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
AT = START.timestamp()
SEED = 7
SESSION = "session"


def execution(number: int, *, attempt: int = 1, ended_after: float = 10.0) -> Execution:
    """A completed execution."""
    return Execution(
        id=f"e{number}",
        tenant_id="default",
        agent_type="chaos",
        definition_hash="",
        created_at=START,
        updated_at=START,
        session_id=SESSION,
        status=ExecutionStatus.COMPLETED,
        step_count=STEPS,
        attempt=attempt,
        completed_at=START + timedelta(seconds=ended_after),
    )


def message(number: int, role: MessageRole, text: str, **metadata: Any) -> SessionMessage:
    """A message of an execution."""
    return SessionMessage(
        id=f"m{number}-{role}-{metadata}",
        tenant_id="default",
        session_id=SESSION,
        role=role,
        content=text,
        created_at=START,
        agent_execution_id=f"e{number}",
        metadata=metadata,
    )


def event(seq: int, execution_id: str, type: str = "agent.step.completed") -> StoredEntry:
    """An event of the session's log."""
    return StoredEntry(
        tenant_id="default",
        session_id=SESSION,
        seq=seq,
        type=type,
        payload={},
        created_at=START,
        execution_id=execution_id,
    )


def effects(number: int, unknown: str | None = None) -> list[dict[str, Any]]:
    """What the witness was told by the tools of a scenario."""
    lines: list[dict[str, Any]] = []
    for call in scenario(number, SEED).calls:
        if call.tool == "ask":
            continue
        told = {
            "at": AT + 1,
            "by": "worker-1",
            "execution": f"e{number}",
            "call": call.id,
            "key": f"e{number}:1:{call.id}",
            "effect": call.tool,
        }
        if call.tool == "guarded":
            lines.append({**told, "op": "approve", "at": AT + 0.5, "approved": not call.is_denied})
            if call.is_denied:
                continue
        lines.append({"op": "begin", **told})
        if call.id != unknown:
            lines.append({"op": "effect", "applied": True, "receipt": f"r-{call.id}", **told})
    return lines


def answer(number: int, unknown: str | None = None, notes: Sequence[str] = ()) -> str:
    """The answer that follows from ``effects``."""
    results: dict[str, str] = {}
    for call in scenario(number, SEED).calls:
        if call.id == unknown:
            results[call.id] = UNKNOWN
        elif call.tool == "pure":
            results[call.id] = call.pure_result
        elif call.tool == "ask":
            results[call.id] = call.answer
        elif call.tool == "guarded" and call.is_denied:
            results[call.id] = DENIED
        else:
            results[call.id] = f"receipt r-{call.id}"
    return scenario(number, SEED).answer(results, notes)


def call_of(number: int, tool: str) -> str:
    """The id of the first call of that tool."""
    return next(call.id for call in scenario(number, SEED).calls if call.tool == tool)


def line(op: str, after: float, by: str, **fields: Any) -> dict[str, Any]:
    """A line of the witness that is about a process."""
    return {"op": op, "at": AT + after, "by": by, **fields}


def good_evidence() -> Evidence:
    """Two executions; the worker of the second was killed in an external call and the next one
    took it over two seconds later."""
    unknown = call_of(1, "external")
    events = [
        event(1, "e0"),
        event(2, "e0", "execution.completed"),
        event(3, "e1"),
        event(4, "e1", "execution.completed"),
    ]
    seen = [(one.seq, one.id) for one in events]
    return Evidence(
        executions_asked=2,
        seed=SEED,
        executions=[execution(0, ended_after=1.5), execution(1, attempt=2)],
        messages=[
            message(0, MessageRole.USER, scenario(0, SEED).text),
            message(0, MessageRole.INFO, "Step 1", event_type="step.completed", step=1),
            message(0, MessageRole.INFO, "Step 2", event_type="step.completed", step=2),
            message(0, MessageRole.ASSISTANT, answer(0)),
            message(1, MessageRole.USER, scenario(1, SEED).text),
            message(1, MessageRole.ASSISTANT, answer(1, unknown)),
        ],
        events={SESSION: events},
        witness=[
            line("claim", 0.1, "worker-1", execution="e0", attempt=1),
            line("claim", 1.6, "worker-1", execution="e1", attempt=1),
            *effects(0),
            *effects(1, unknown),
            line("saw", 0.1, "worker-1", point="in:tool"),
            line("crash", 3.0, "worker-1", point="in:tool"),
            line("claim", 5.0, "worker-2", execution="e1", attempt=2),
        ],
        subscribers=[SubscriberLog("subscriber-0", SESSION, seen, 1)],
    )
