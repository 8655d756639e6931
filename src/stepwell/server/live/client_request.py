"""What a client of AG-UI or the AI SDK asks for: a message to send, answers to give. Both protocols
are read into this, and it goes through the same intake as the other routes."""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stepwell.journal.status import ExecutionStatus
from stepwell.server.live.execution_stream import FollowedExecution
from stepwell.server.policy import require
from stepwell.sessions.errors import ConflictError, QuestionChangedError, RefusedError
from stepwell.sessions.ids import derived_id
from stepwell.sessions.intake.intake import NewMessage, Sent
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, Session
from stepwell.state import Approval, PendingKind

if TYPE_CHECKING:
    from stepwell.server.services import Services

ANSWER = "executions.answer"
NOT_ANSWERED = "The person did not answer."
NO_ANSWER = object()
"""Stands for an answer that a person refused to give."""


class ClientRequest(Struct, frozen=True, kw_only=True):
    """A message, named as its client names it so that it counts once, and answers by the id of
    their question."""

    text: str | None = None
    named: tuple[str, ...] = ()
    answers: tuple[tuple[str, Any], ...] = ()


class _Position(Struct, frozen=True):
    newest: int = 0
    paused: Execution | None = None


async def paused_execution(services: "Services", session: Session) -> Execution | None:
    """The execution of the session that waits for a person, if one does."""
    return (await _position(services, session)).paused


async def admit_request(
    services: "Services", who: Principal, session: Session | None, request: ClientRequest
) -> FollowedExecution:
    """Carry it out and return which execution to follow from where.

    Raises ``SessionError`` if it can't be done, ``NotAllowedError`` if the application's own rule
    forbids it; then nothing has changed, but for the answers before the one that was refused."""
    if session is None:
        await require(services, who, "sessions.create")
    position = _Position() if session is None else await _position(services, session)
    followed: FollowedExecution | None = None
    for question, answer in request.answers:
        if session is None or position.paused is None:
            raise QuestionChangedError("nothing waits for an answer", code="not_waiting")
        await require(services, who, ANSWER, position.paused)
        value = _refusal(position.paused, question) if answer is NO_ANSWER else answer
        answered = await services.lifecycle.answer(position.paused.id, question, value)
        followed = await _follow_resumed(services, session, answered, position.newest)
    if request.text is not None:
        unanswered = None if request.answers else position.paused
        if unanswered is not None and any(_questions(unanswered)):
            # Before the message is stored: it is an answer as well.
            await require(services, who, ANSWER, unanswered)
        sent = await _send(services, who, session, request)
        if unanswered is not None:
            await _go_on_without(services, unanswered)
        return await _follow_new(services, sent, position.newest)
    if followed is None:
        raise RefusedError(
            "there is nothing new: send a message of the user, or an answer to what is waited for",
            code="nothing_new",
        )
    return followed


async def follow_running(services: "Services", session: Session) -> FollowedExecution | None:
    """The execution that runs or waits to run, told from its beginning."""

    async def look(tx: Transaction) -> tuple[Execution | None, int]:
        unfinished = await tx.unfinished(session.id)
        oldest, _ = await tx.entry_range(session.id)
        return unfinished[0] if unfinished else None, oldest - 1

    head, before = await services.store.read(look)
    if head is None or head.status is ExecutionStatus.PAUSED:
        return None
    return FollowedExecution(session_id=session.id, execution_id=head.id, after=before)


async def _position(services: "Services", session: Session) -> _Position:
    async def look(tx: Transaction) -> _Position:
        _, newest = await tx.entry_range(session.id)
        unfinished = await tx.unfinished(session.id)
        is_paused = bool(unfinished) and unfinished[0].status is ExecutionStatus.PAUSED
        return _Position(newest, unfinished[0] if is_paused else None)

    return await services.store.read(look)


async def _send(
    services: "Services", who: Principal, session: Session | None, request: ClientRequest
) -> Sent:
    message = NewMessage(
        content=request.text or "",
        session_id=None if session is None else session.id,
        idempotency_key=derived_id("client" if session is None else session.id, *request.named),
    )
    return await services.intake.send_message(who, message)


async def _go_on_without(services: "Services", paused: Execution) -> None:
    """The person wrote something else: what waits for an answer is told so and goes on, or the
    message would never have its turn."""
    for question_id in _questions(paused):
        try:
            refusal = _refusal(paused, question_id)
            await services.lifecycle.answer(paused.id, question_id, refusal)
        except ConflictError:
            return  # somebody answered, or the message itself put an end to it


def _questions(paused: Execution) -> list[str]:
    """Ids of what calls ask a person. More budget is waited for without one: no message gives
    it."""
    return [asked["question_id"] for asked in paused.questions if asked["call_id"] is not None]


def _refusal(paused: Execution, question: str) -> Any:
    """No answer, in the form that the question takes."""
    for asked in paused.questions:
        if question == asked["question_id"] and asked["kind"] == PendingKind.APPROVAL:
            return Approval.denied(NOT_ANSWERED)
    return NOT_ANSWERED


async def _follow_resumed(
    services: "Services", session: Session, answered: Execution, after: int
) -> FollowedExecution:
    state = None
    if answered.last_snapshot_id is not None:
        state = await services.reader.state_of(answered.last_snapshot_id)
    return FollowedExecution(
        session_id=session.id, execution_id=answered.id, after=after, begins_with=state
    )


async def _follow_new(services: "Services", sent: Sent, newest: int) -> FollowedExecution:
    execution = sent.execution
    if execution is None or sent.repeated:
        oldest, _ = await services.store.read(lambda tx: tx.entry_range(sent.session.id))
        newest = oldest - 1
    execution_id = sent.message.agent_execution_id if execution is None else execution.id
    return FollowedExecution(
        session_id=sent.session.id,
        execution_id=execution_id or "",
        after=newest,
        message=None if execution is None else sent.message,
    )
