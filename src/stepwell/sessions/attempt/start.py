"""How an attempt begins: its row, and what people read of it. Only makes values."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.takeovers import takeover_of, takeover_text
from stepwell.sessions.directory import RegisteredAgent, has_other_definition
from stepwell.sessions.narration import Narrator
from stepwell.sessions.occurrence import Note
from stepwell.sessions.records import EventType, Execution


def has_changed(claimed: Execution, agent: RegisteredAgent) -> bool:
    """Whether the definition of the agent changed after the execution began."""
    has_begun = claimed.last_snapshot_id is not None or claimed.attempt > 1
    return has_begun and has_other_definition(claimed.definition_hash, agent.definition_hash)


def start_notes(
    narrator: Narrator, claimed: Execution, agent: RegisteredAgent | None, at: datetime
) -> list[Note]:
    """What people read: that it started, was taken over, or goes on with another definition."""
    notes = [narrator.note(EventType.EXECUTION_STARTED, "Execution started", at)]
    if (takeover := takeover_of(claimed)) is not None:
        notes.append(
            narrator.note(
                EventType.EXECUTION_STARTED,
                takeover_text(takeover),
                at,
                parts=("taken over", claimed.attempt),
                metadata={"takeover": takeover},
            )
        )
    if agent is not None and has_changed(claimed, agent):
        notes.append(
            narrator.note(
                EventType.EXECUTION_STARTED,
                f"The definition of agent {agent.name!r} changed since this execution began; "
                "it goes on with the new one.",
                at,
                parts=("changed", agent.definition_hash),
                metadata={"definition_changed": True},
            )
        )
    return notes


def begin_row(claimed: Execution, agent: RegisteredAgent | None) -> Execution:
    """The row of a claimed execution that runs, with the definition that it runs with."""
    if agent is None:
        return claimed
    metadata: dict[str, Any] = {k: v for k, v in claimed.metadata.items() if k != "set_aside"}
    if has_changed(claimed, agent):
        change = {
            "from": claimed.definition_hash,
            "to": agent.definition_hash,
            "step": claimed.step_count + 1,
        }
        metadata["definition_changes"] = [*metadata.get("definition_changes", ()), change]
    return replace(
        claimed,
        status=ExecutionStatus.RUNNING,
        definition_hash=agent.definition_hash,
        agent_config=agent.config,
        metadata=metadata,
        pending=(),
        decision=None,
        stop_reason=None,
        error_message=None,
        completed_at=None,
    )
