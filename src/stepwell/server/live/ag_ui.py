"""AG-UI over sessions: its client sends messages and answers, and receives the execution as AG-UI
events."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from msgspec import ValidationError, convert

from stepwell.protocols.ag_ui import AG_UI_HEADERS, AgUiTranslator
from stepwell.protocols.ag_ui.input import approval_answer
from stepwell.protocols.ag_ui.shapes import RunInput, SentAnswer, SentText, SentUser
from stepwell.protocols.client_input import read_json
from stepwell.protocols.client_stream import ClientInputError
from stepwell.server.live.client_request import (
    NO_ANSWER,
    ClientRequest,
    ClientText,
    admit_request,
)
from stepwell.server.live.client_session import ClientSession, find_client_session
from stepwell.server.live.execution_stream import ExecutionStream, stream_response
from stepwell.server.live.response import LiveResponse
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Session

if TYPE_CHECKING:
    from stepwell.server.services import Services

PROTOCOL = "ag-ui"


async def ag_ui_response(
    services: "Services", who: Principal, session: Session | None, body: bytes
) -> LiveResponse:
    """Admit a RunAgentInput and stream the run. Without a session, the thread's id names it. Raises
    ``RefusedError`` for invalid input."""
    given = _read(body)
    request = _request(given)
    if session is not None:
        client = ClientSession(session.id, session)
    else:
        client = await find_client_session(services, who, PROTOCOL, given.thread_id)
    with ExitStack() as leaving:
        # Before the message is stored, so that a refusal changes nothing.
        leaving.enter_context(services.feeds.seats.hold(who))
        followed = await admit_request(services, who, client, request)
        seat = leaving.pop_all()
    translator = AgUiTranslator(given.thread_id, given.run_id)
    stream = ExecutionStream(services, followed, translator)
    return stream_response(services, who, stream, headers=AG_UI_HEADERS, seat=seat)


def _read(body: bytes) -> RunInput:
    try:
        return convert(read_json(body), RunInput)
    except ClientInputError as error:
        raise RefusedError(str(error), code="bad_input") from None
    except ValidationError as error:
        raise RefusedError(
            f"this is not an AG-UI RunAgentInput: {error}", code="bad_input"
        ) from None


def _request(given: RunInput) -> ClientRequest:
    answers = tuple(_answer(number, one) for number, one in enumerate(given.resume or ()))
    said: list[SentUser] = []
    for message in reversed(given.messages):
        if not isinstance(message, SentUser):
            break
        said.insert(0, message)
    if not said or answers:
        # With an answer the client sends its old messages again.
        return ClientRequest(answers=answers)
    messages = tuple(ClientText(message.id, _text(message)) for message in said)
    return ClientRequest(messages=messages, named=(PROTOCOL, given.thread_id))


def _text(message: SentUser) -> str:
    if isinstance(message.content, str):
        return message.content
    texts = [part.text for part in message.content if isinstance(part, SentText)]
    if len(texts) != len(message.content):
        raise RefusedError(
            f"message {message.id!r:.80} has a file; sessions accept text only", code="text_only"
        )
    return "\n".join(texts)


def _answer(number: int, given: SentAnswer) -> tuple[str, Any]:
    if given.status == "cancelled":
        return given.interrupt_id, NO_ANSWER
    if given.status != "resolved":
        raise RefusedError(
            f"resume[{number}].status is {given.status!r:.40}; it is resolved or cancelled",
            code="bad_input",
        )
    return given.interrupt_id, approval_answer(given.payload)
