"""Puts an answer into the state of the paused execution that asked."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from stepwell.errors import SerializationError, StepwellError
from stepwell.journal.status import ExecutionStatus
from stepwell.protocols.client_input import check_json
from stepwell.protocols.client_stream import ClientInputError
from stepwell.secrets import HIDDEN
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.errors import QuestionChangedError, RefusedError
from stepwell.sessions.ledger.recovery import why_no_choice
from stepwell.sessions.narration import pending_data
from stepwell.sessions.records import Execution
from stepwell.sessions.requests.resume import Decide, ResumedExecution
from stepwell.state import AgentState, Approval, PendingKind, Question


def decide_answer(question_id: str | None, answer: Any, *, call_id: str | None = None) -> Decide:
    """Return the decision on how an answer resumes the execution that asked the question."""

    def decide(execution: Execution, state: AgentState | None) -> ResumedExecution:
        paused, asked = _find_question(execution, state, question_id, call_id)
        answered = _with_answer(paused, asked, answer)
        text = _text(answered, _lost_secrets(answered, asked.call_id or "", answer))
        goes_on = not answered.pending
        changed = replace(
            execution,
            status=ExecutionStatus.PENDING if goes_on else ExecutionStatus.PAUSED,
            pending=pending_data(answered),
        )
        return ResumedExecution(execution=changed, state=answered, text=text)

    return decide


def question_of(state: AgentState, question_id: str | None) -> Question:
    """Find the question that an answer names; raises ``QuestionChangedError`` with what is asked
    instead."""
    for asked in state.pending:
        if asked.id == question_id:
            return asked
    named = "it names none" if question_id is None else f"{question_id!r:.80} is not asked"
    listed = ", ".join(_describe(asked) for asked in state.pending) or "(none)"
    raise QuestionChangedError(
        f"an answer must name the question_id of what is asked now: {named}; waiting: {listed}",
        code="question_changed",
        pending=pending_data(state),
    )


def _find_question(
    execution: Execution, state: AgentState | None, question_id: str | None, call_id: str | None
) -> tuple[AgentState, Question]:
    """Return the paused state, and the question that the answer is for."""
    if execution.status is not ExecutionStatus.PAUSED or state is None:
        raise QuestionChangedError(
            f"execution {execution.id} is {execution.status} and waits for no answer",
            code="not_waiting",
        )
    asked = question_of(state, question_id)
    if call_id is not None and call_id != asked.call_id:
        raise QuestionChangedError(
            f"question {asked.id} is not that of call {call_id!r:.80}",
            code="question_changed",
            pending=pending_data(state),
        )
    if asked.kind is PendingKind.BUDGET:
        raise RefusedError(
            f"question {asked.id} asks for more budget, which is granted with POST "
            f"/agent/executions/{execution.id}/resume",
            code="not_granted",
        )
    return state, asked


def _describe(asked: Question) -> str:
    return f"{asked.id} ({asked.kind}: {asked.prompt:.80})"


def _with_answer(state: AgentState, asked: Question, answer: Any) -> AgentState:
    if (why := why_no_choice(asked, answer)) is not None:
        raise RefusedError(why, code="bad_answer")
    try:
        if not isinstance(answer, Approval):
            check_json(answer, "the answer")
        return state.with_answer(asked, answer)
    except (ClientInputError, StepwellError) as error:
        raise RefusedError(str(error), code="bad_answer") from error


def _lost_secrets(answered: AgentState, call_id: str, answer: Any) -> list[str]:
    """Return the secret arguments of an edited approval; they are not stored, so the call runs
    without them."""
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
