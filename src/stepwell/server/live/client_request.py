"""The request of an AG-UI or AI SDK client: a message to send, answers to give. It goes through the
same intake as the other routes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict, replace

from stepwell.journal.status import ExecutionStatus
from stepwell.protocols.ag_ui.shapes import GrantedBudget
from stepwell.server.live.client_session import ClientSession
from stepwell.server.live.execution_stream import FollowedExecution
from stepwell.server.policy import require
from stepwell.sessions.errors import (
    ConflictError,
    NotThereError,
    QuestionChangedError,
    RefusedError,
)
from stepwell.sessions.ids import derived_id
from stepwell.sessions.intake.admission import stored_key
from stepwell.sessions.intake.intake import NEW_SESSION, NewMessage, NewSession, Sent
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, Session
from stepwell.state import Approval, PendingKind

if TYPE_CHECKING:
    from stepwell.server.services import Services

ANSWER = "executions.answer"
NOT_ANSWERED = "The person did not answer."
LONGEST_ID = 64
NO_ANSWER = object()
"""Stands for a question that a person did not answer."""


class ClientText(Struct, frozen=True):
    """A message of the user, with the client's id for it."""

    id: str
    text: str


class ClientRequest(Struct, frozen=True, kw_only=True):
    """The newest messages of the user, oldest first, and answers by the id of their question.

    ``named`` and the id of a message identify it, so that it counts once however often it is sent.
    """

    messages: tuple[ClientText, ...] = ()
    named: tuple[str, ...] = ()
    answers: tuple[tuple[str, Any], ...] = ()
    new_session: NewSession = NEW_SESSION
    """The session to create if there is none."""


class _Position(Struct, frozen=True):
    newest: int = 0
    paused: Execution | None = None


async def paused_execution(services: "Services", session: Session) -> Execution | None:
    """Return the execution of the session that waits for a person, if one does."""
    return (await _position(services, session)).paused


async def admit_request(
    services: "Services", who: Principal, client: ClientSession, request: ClientRequest
) -> FollowedExecution:
    """Apply the request. Return which execution to follow, and from where.

    Raises ``SessionError`` if it can't be done, ``NotAllowedError`` if the application's own rule
    forbids it; then nothing has changed, but for the answers before the one that was refused."""
    session = client.found
    if session is None:
        await require(services, who, "sessions.create")
    position = _Position() if session is None else await _position(services, session)
    followed: FollowedExecution | None = None
    for question, answer in request.answers:
        if session is None or position.paused is None:
            raise QuestionChangedError("nothing waits for an answer", code="not_waiting")
        await require(services, who, ANSWER, position.paused)
        value = _refusal(position.paused, question) if answer is NO_ANSWER else answer
        answered = await _answer(services, who, position.paused, question, value)
        followed = await _follow_resumed(services, session, answered, position.newest)
    if request.messages:
        unanswered = None if request.answers else position.paused
        if unanswered is not None and any(_questions(unanswered)):
            # Before the message is stored: it counts as an answer as well.
            await require(services, who, ANSWER, unanswered)
        sent = await _send(services, who, client, request)
        if unanswered is not None and not sent.repeated:
            await _answer_with_refusals(services, unanswered)
        return await _follow_new(services, sent, position.newest)
    if followed is None:
        raise RefusedError(
            "nothing new: send a message of the user, or an answer to a question",
            code="nothing_new",
        )
    return followed


async def follow_running(services: "Services", session: Session) -> FollowedExecution | None:
    """Return the execution that runs or waits to run, from its beginning."""

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


async def _answer(
    services: "Services", who: Principal, paused: Execution, question: str, value: Any
) -> Execution:
    kinds = {asked["question_id"]: asked["kind"] for asked in paused.questions}
    if kinds.get(question) != PendingKind.BUDGET:
        return await services.lifecycle.answer(paused.id, question, value)
    await require(services, who, "executions.resume", paused)
    try:
        grant = convert(value, GrantedBudget)
    except ValidationError as error:
        raise RefusedError(f"this grants no budget: {error}", code="bad_budget") from None
    return await services.lifecycle.resume(paused.id, question_id=question, **asdict(grant))


async def _send(
    services: "Services", who: Principal, client: ClientSession, request: ClientRequest
) -> Sent:
    session, owner = client.found, client.id or "client"
    new = request.messages
    if session is not None:
        new = await _unsent(services, who, session, request)
        if not new:
            return await _sent_before(services, session, request.messages[-1])
    message = NewMessage(
        content="\n\n".join(message.text for message in new),
        session_id=None if session is None else session.id,
        new_session=replace(request.new_session, id=client.id),
        idempotency_key=derived_id(owner, *request.named, new[-1].id),
    )
    try:
        return await services.intake.send_message(who, message)
    except ConflictError as error:
        if error.code != "idempotency_conflict":
            raise
        raise ConflictError(
            f"message {new[-1].id!r:.80} was sent before with another text, and messages of a "
            "session can't be edited; send a new message",
            code="no_editing",
        ) from error


async def _unsent(
    services: "Services", who: Principal, session: Session, request: ClientRequest
) -> Sequence[ClientText]:
    """Return the messages after the last one that the session has: a client that aborted a run
    sends the message of that run again, before the new one."""

    async def is_stored(tx: Transaction, message: ClientText) -> bool:
        key = stored_key(who.user_id, derived_id(session.id, *request.named, message.id))
        if await tx.message_by_key(session.tenant_id, key) is not None:
            return True
        return await _is_session_message(tx, session, message)

    async def look(tx: Transaction) -> Sequence[ClientText]:
        *older, newest = request.messages
        if await _is_session_message(tx, session, newest):
            return ()
        for number in reversed(range(len(older))):
            if await is_stored(tx, older[number]):
                return request.messages[number + 1 :]
        return request.messages

    return await services.store.read(look)


async def _is_session_message(tx: Transaction, session: Session, message: ClientText) -> bool:
    """Whether its id is the server's own, which AG-UI clients take over from snapshots."""
    if len(message.id) > LONGEST_ID or not message.id.isascii() or not message.id.isprintable():
        return False
    found = await tx.message(message.id)
    return found is not None and found.session_id == session.id


async def _sent_before(services: "Services", session: Session, message: ClientText) -> Sent:
    async def look(tx: Transaction) -> Sent:
        found = await tx.message(message.id)
        if found is None:
            raise NotThereError("message", message.id)
        id = found.agent_execution_id
        execution = None if id is None else await tx.execution(id)
        return Sent(session=session, message=found, execution=execution, repeated=True)

    return await services.store.read(look)


async def _answer_with_refusals(services: "Services", paused: Execution) -> None:
    """Answer the questions of a paused execution with 'no answer', since the person wrote something
    else; otherwise the message would wait forever."""
    for question_id in _questions(paused):
        try:
            refusal = _refusal(paused, question_id)
            await services.lifecycle.answer(paused.id, question_id, refusal)
        except ConflictError:
            return  # somebody answered, or the message ended it


def _questions(paused: Execution) -> list[str]:
    """Return the ids of questions that calls ask; a message does not answer a request for
    budget."""
    return [asked["question_id"] for asked in paused.questions if asked["call_id"] is not None]


def _refusal(paused: Execution, question: str) -> Any:
    """Return 'no answer' in the form of the question."""
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
