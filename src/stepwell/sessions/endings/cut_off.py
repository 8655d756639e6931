"""Subagents without an end event, because the execution that ran them is over or its
worker died; and the terminal status of an execution that no run tells.
"""

from datetime import datetime

from msgspec import to_builtins
from msgspec.structs import replace

from stepwell.continuation import StopReason, StopSignal, resolve
from stepwell.journal.envelope import EnvelopeType, StatusPayload
from stepwell.journal.status import BroadcastStatus, ExecutionStatus
from stepwell.sessions.first_state import agent_id_of
from stepwell.sessions.narration import AGENT_ID, with_decision
from stepwell.sessions.occurrence import Note, Occurrence
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution

MOST_SUBAGENTS = 10_000
"""More than any execution has."""


async def cut_off_subagents(
    tx: Transaction, execution: Execution, *, but_paused: bool = False
) -> list[Occurrence]:
    """End those that are not over: their parent is, or its worker died. Returns their ends."""
    ends: list[Occurrence] = []
    why = "its worker died" if but_paused else "the execution that ran it ended"
    signal = StopSignal(reason=StopReason.USER_REQUESTED, message=f"It was cut off: {why}.")
    for child in await tx.executions(parent_execution_id=execution.id, limit=MOST_SUBAGENTS):
        is_paused = child.status is ExecutionStatus.PAUSED
        if child.status.is_terminal or (but_paused and is_paused):
            continue
        ends += await cut_off_subagents(tx, child, but_paused=but_paused)
        ended = replace(
            with_decision(child, resolve([signal.as_evaluation()])),
            status=ExecutionStatus.CANCELLED,
            error_message=signal.message,
            pending=(),
            completed_at=execution.updated_at,
            updated_at=execution.updated_at,
        )
        await tx.save_execution(ended)
        before = BroadcastStatus.PAUSED if is_paused else BroadcastStatus.PROCESSING
        ends.append(terminal_status(ended, before, execution.updated_at))
    return ends


def terminal_status(
    execution: Execution, before: BroadcastStatus, at: datetime, note: Note | None = None
) -> Occurrence:
    """The one terminal status that live clients wait for, of a row that is over."""
    status, reason = BroadcastStatus.of(execution.status), execution.stop_reason
    is_child = execution.parent_execution_id is not None
    payload = StatusPayload(
        agent_id=execution.metadata.get(AGENT_ID, execution.id)
        if is_child
        else agent_id_of(execution),
        agent_name=execution.agent_type if is_child else None,
        parent_execution_id=execution.parent_execution_id,
        status=status,
        previous_status=before,
        step_count=execution.step_count,
        stop_reason=None if reason is None else StopReason(reason),
        reason=execution.error_message or execution.cancel_requested,
        error_message=execution.error_message if status is BroadcastStatus.FAILED else None,
    )
    return Occurrence(
        at=at,
        execution_id=execution.id,
        type=EnvelopeType.AGENT_STATUS.value,
        payload=to_builtins(payload),
        note=note,
    )
