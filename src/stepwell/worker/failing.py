"""How an execution ends that broke in a way nobody foresaw: as failed, with a text for people."""

from datetime import datetime

from msgspec import to_builtins
from msgspec.structs import replace

from stepwell.broadcasting.envelope import BroadcastStatus, EnvelopeType, StatusPayload
from stepwell.continuation import StopReason
from stepwell.sessions.finishing import finish
from stepwell.sessions.ids import derived_id
from stepwell.sessions.log import message_event
from stepwell.sessions.ports import Jobs, NewEvent, Transaction
from stepwell.sessions.records import Execution, ExecutionStatus
from stepwell.sessions.running import TOLD_STATUS
from stepwell.sessions.telling import Narrator


async def failed(
    tx: Transaction, jobs: Jobs, execution: Execution, error_id: str, now: datetime
) -> bool:
    """End it as failed, unless it is over or another worker has it; whether it did.

    People are told an id under which the log has the details, and nothing of the error itself.
    """
    if execution.session_id is not None:
        # The same order of locks as everywhere: the session first.
        await tx.session(execution.session_id, lock=True)
    now_there = await tx.execution(execution.id, lock=True)
    if now_there is None or now_there.attempt != execution.attempt or now_there.status.is_over:
        return False
    text = f"Something went wrong in the server. Its log tells more under error id {error_id}."
    ended = replace(
        now_there,
        status=ExecutionStatus.FAILED,
        error_message=text,
        stop_reason=StopReason.ERROR,
        pending=(),
        updated_at=now,
        completed_at=now,
    )
    message, type = Narrator(ended).ended_with(
        ended.status, text, now, {"stop_reason": StopReason.ERROR.value}
    )
    events = [message_event(message, type), _status(now_there, text, now)]
    await finish(tx, jobs, ended, [message], events)
    return True


def _status(before: Execution, text: str, now: datetime) -> NewEvent:
    """The one terminal status that live clients wait for."""
    told = before.metadata.get(TOLD_STATUS) or BroadcastStatus.PROCESSING
    payload = StatusPayload(
        agent_id=before.session_id or before.id,
        status=BroadcastStatus.FAILED,
        previous_status=BroadcastStatus(told),
        step_count=before.step_count,
        stop_reason=StopReason.ERROR,
        error_message=text,
    )
    return NewEvent(
        id=derived_id(before.id, "status", "broke", before.attempt),
        type=EnvelopeType.STATUS.value,
        payload=to_builtins(payload),
        created_at=now,
        execution_id=before.id,
    )
