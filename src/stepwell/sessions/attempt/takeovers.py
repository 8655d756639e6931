"""A claim that knows whose lease expired: kept in the row's metadata, published when it starts.

Also which attempts ended because their worker was shut down, so that nobody calls them dead.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from stepwell.sessions.claim_ports import Claim
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution

TAKEOVERS = "takeovers"
STOPPED_ATTEMPTS = "stopped_attempts"
MOST = 50
"""The newest that a row keeps of each."""


async def note_takeover(
    tx: Transaction, claim: Claim, *, now: datetime, silent_seconds: float
) -> Execution:
    """Return the claimed execution; of a takeover with an entry about it, which is stored."""
    row = claim.execution
    if not claim.is_takeover:
        return row
    entry = {
        "attempt": row.attempt,
        "step": row.step_count + 1,
        "at": now.isoformat(),
        "worker": claim.taken_from,
        "silent_seconds": round(silent_seconds, 1),
    }
    row = replace(row, metadata=_with(row.metadata, TAKEOVERS, entry))
    await tx.save_execution(row)
    return row


def takeover_of(execution: Execution) -> Mapping[str, Any] | None:
    """The entry about the attempt that a claimed execution is in, if it began with a takeover."""
    entries: list[Mapping[str, Any]] = execution.metadata.get(TAKEOVERS, [])
    newest = entries[-1] if entries else None
    return newest if newest is not None and newest["attempt"] == execution.attempt else None


def takeover_text(entry: Mapping[str, Any]) -> str:
    """The text for people."""
    why = "Its worker gave it up"
    if entry["worker"] is not None:
        why = f"Its worker ({entry['worker']}) did not answer for {entry['silent_seconds']:g} s"
    return f"{why}; another one goes on from step {entry['step']} (attempt {entry['attempt']})"


def with_stopped_attempt(execution: Execution) -> Execution:
    """The row, knowing that the worker of this attempt was shut down."""
    metadata = _with(execution.metadata, STOPPED_ATTEMPTS, execution.attempt)
    return replace(execution, metadata=metadata)


def stopped_attempts(execution: Execution) -> Collection[int]:
    """The attempts whose worker was shut down in the middle of a step."""
    return execution.metadata.get(STOPPED_ATTEMPTS, ())


def _with(metadata: Mapping[str, Any], name: str, entry: object) -> dict[str, Any]:
    return {**metadata, name: [*metadata.get(name, ()), entry][-MOST:]}
