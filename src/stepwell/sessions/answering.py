"""An answer to what a paused execution asked, put into its state."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from stepwell.broadcasting.client_input import check_json
from stepwell.broadcasting.client_stream import ClientInputError, question_id
from stepwell.errors import SerializationError, StepwellError
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.errors import ConflictError, RefusedError
from stepwell.sessions.records import Execution, ExecutionStatus
from stepwell.sessions.recovery import why_no_choice
from stepwell.sessions.taking_up import Decide, TakenUp
from stepwell.sessions.telling import told_pending
from stepwell.state import AgentState, Approval, Pending, PendingKind
from stepwell.tools.secrets import HIDDEN


def answered_by(call_id: str, answer: Any) -> Decide:
    """What an answer makes of a paused execution. ``call_id`` is the call's, or the id of one
    question as AG-UI clients know it, which an older question of the same call does not have."""

    def decide(execution: Execution, state: AgentState | None) -> TakenUp:
        paused, asked = _asked(execution, state, call_id)
        answered = _with_answer(paused, asked, answer)
        text = _text(answered, _not_stored(answered, asked, answer))
        goes_on = not answered.pending
        changed = replace(
            execution,
            status=ExecutionStatus.PENDING if goes_on else ExecutionStatus.PAUSED,
            pending=told_pending(answered),
        )
        return TakenUp(execution=changed, state=answered, text=text)

    return decide


def _asked(execution: Execution, state: AgentState | None, named: str) -> tuple[AgentState, str]:
    """The state that waits, and the call in it that the answer is for."""
    if execution.status is not ExecutionStatus.PAUSED or state is None:
        raise ConflictError(
            f"execution {execution.id} is {execution.status} and waits for no answer",
            code="not_waiting",
        )
    for pending in state.pending:
        call_id = pending.call_id
        if call_id is None or pending.kind is PendingKind.BUDGET:
            continue
        if named in (call_id, question_id(execution.id, state.step_count, call_id)):
            return state, call_id
    listed = ", ".join(_named(pending) for pending in state.pending) or "(none)"
    raise ConflictError(
        f"execution {execution.id} waits for no answer to {named!r:.80}; waiting: {listed}",
        code="not_waiting",
    )


def _named(pending: Pending) -> str:
    if pending.call_id is None:
        return f"{pending.kind} (resume it with more)"
    return f"{pending.call_id} ({pending.kind}: {pending.prompt:.80})"


def _with_answer(state: AgentState, call_id: str, answer: Any) -> AgentState:
    asked = next(pending for pending in state.pending if pending.call_id == call_id)
    if (why := why_no_choice(asked, answer)) is not None:
        raise RefusedError(why, code="bad_answer")
    try:
        if not isinstance(answer, Approval):
            check_json(answer, "the answer")
        return state.with_answer(call_id, answer)
    except (ClientInputError, StepwellError) as error:
        raise RefusedError(str(error), code="bad_answer") from error


def _not_stored(answered: AgentState, call_id: str, answer: Any) -> list[str]:
    """The arguments of an edited approval that are secret: the call will run without them."""
    given = answer.arguments if isinstance(answer, Approval) else _arguments(answer)
    if given is None:
        return []
    serializer = AgentStateSerializer()
    try:
        kept = serializer.from_json(serializer.to_json(answered))
    except SerializationError as error:
        raise RefusedError(str(error), code="bad_answer") from error
    stored = next((a.answer for a in kept.answered if a.call.id == call_id), None)
    shown = stored.arguments if isinstance(stored, Approval) else _arguments(stored)
    return [n for n, value in (shown or {}).items() if value == HIDDEN and given.get(n) != HIDDEN]


def _arguments(answer: Any) -> Mapping[str, Any] | None:
    if not isinstance(answer, Mapping):
        return None
    arguments = cast("Mapping[str, Any]", answer).get("arguments")
    return cast("Mapping[str, Any]", arguments) if isinstance(arguments, Mapping) else None


def _text(answered: AgentState, not_stored: list[str]) -> str:
    left = len(answered.pending)
    text = "Answer received, execution queued"
    if left:
        text = f"Answer received, {left} more {'is' if left == 1 else 'are'} waited for"
    if not_stored:
        text += (
            f"; secret arguments are not stored, so the call will run without "
            f"{', '.join(not_stored)}"
        )
    return text
