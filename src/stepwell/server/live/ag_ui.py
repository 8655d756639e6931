"""AG-UI over sessions: what its client sends becomes messages and answers, and the execution that
follows is told as AG-UI events."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

from msgspec import ValidationError, convert

from stepwell.protocols.ag_ui import AG_UI_HEADERS, AgUiTranslator
from stepwell.protocols.ag_ui.shapes import RunInput, SentAnswer, SentText, SentUser
from stepwell.protocols.client_input import read_json
from stepwell.protocols.client_stream import ClientInputError
from stepwell.server.live.client_request import NO_ANSWER, ClientRequest, admit_request
from stepwell.server.live.execution_stream import ExecutionStream, stream_response
from stepwell.server.live.response import LiveResponse
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Session

if TYPE_CHECKING:
    from stepwell.server.services import Services


async def ag_ui_response(
    services: "Services", who: Principal, session: Session | None, body: bytes
) -> LiveResponse:
    """Take a RunAgentInput and tell the run. A client that leaves does not end it. Raises
    ``RefusedError`` for what is none."""
    given = _read(body)
    request = _request(given)
    with ExitStack() as leaving:
        # Before the message is stored: who may not follow it is refused as a whole.
        leaving.enter_context(services.feeds.seats.hold(who))
        followed = await admit_request(services, who, session, request)
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
        raise RefusedError(f"this is no AG-UI RunAgentInput: {error}", code="bad_input") from None


def _request(given: RunInput) -> ClientRequest:
    answers = tuple(_answer(number, one) for number, one in enumerate(given.resume or ()))
    said: list[SentUser] = []
    for message in reversed(given.messages):
        if not isinstance(message, SentUser):
            break
        said.insert(0, message)
    if not said or answers:
        # With an answer the client sends its whole list again; nothing in it is new.
        return ClientRequest(answers=answers)
    text = "\n\n".join(_text(message) for message in said)
    return ClientRequest(text=text, named=("ag-ui", given.thread_id, said[-1].id))


def _text(message: SentUser) -> str:
    if isinstance(message.content, str):
        return message.content
    texts = [part.text for part in message.content if isinstance(part, SentText)]
    if len(texts) != len(message.content):
        raise RefusedError(
            f"message {message.id!r:.80} holds a file; sessions take text", code="text_only"
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
    payload = given.payload
    if isinstance(payload, Mapping) and {"editedArgs", "arguments"} & {*payload}:
        raise RefusedError(
            f"resume[{number}].payload edits the arguments of the call, which is not taken from a "
            "client",
            code="not_editable",
        )
    return given.interrupt_id, cast("Any", payload)
