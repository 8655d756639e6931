"""The AI SDK over sessions: ``useChat`` posts messages and answers, and receives the execution as a
UI message stream."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

from starlette.responses import Response

from stepwell.messages import TextPart
from stepwell.protocols.ai_sdk import (
    AI_SDK_DONE,
    AI_SDK_HEADERS,
    AiSdkTranslator,
    response_message_id,
)
from stepwell.protocols.ai_sdk.answers import find_answer
from stepwell.protocols.ai_sdk.history import UiMessage, ui_messages
from stepwell.protocols.client_input import read_json
from stepwell.protocols.client_stream import ClientInputError
from stepwell.server.live.client_request import (
    ClientRequest,
    ClientText,
    admit_request,
    follow_running,
    paused_execution,
)
from stepwell.server.live.client_session import UNNAMED, ClientSession, find_client_session
from stepwell.server.live.execution_stream import (
    ExecutionStream,
    FollowedExecution,
    stream_response,
)
from stepwell.sessions.errors import QuestionChangedError, RefusedError
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, Session

if TYPE_CHECKING:
    from stepwell.server.services import Services

PROTOCOL = "ai-sdk"


async def ai_sdk_response(
    services: "Services", who: Principal, session: Session | None, body: bytes
) -> Response:
    """Admit what a chat posts and stream the run. Without a session, the chat's id names it. Raises
    ``RefusedError`` for invalid input."""
    posted, messages = _read(body)
    if posted.get("trigger") == "regenerate-message":
        raise RefusedError(
            "the server does not regenerate answers; send a new message instead, or fork the "
            "execution with POST /agent/executions/{execution_id}/fork",
            code="no_regeneration",
        )
    client = await _client_session(services, who, session, posted)
    session = client.found
    paused = None if session is None else await paused_execution(services, session)
    request = _request(posted, messages, paused)
    with ExitStack() as leaving:
        # Before the message is stored, so that a refusal changes nothing.
        leaving.enter_context(services.feeds.seats.hold(who))
        followed = await admit_request(services, who, client, request)
        seat = leaving.pop_all()
    message_id = response_message_id(body) or followed.execution_id
    return _stream(services, who, followed, message_id, seat)


async def ai_sdk_chat_resume_response(services: "Services", who: Principal, chat: str) -> Response:
    """Stream the run of the session that the chat's id names; see ``ai_sdk_resume_response``."""
    client = await find_client_session(services, who, PROTOCOL, chat, "sessions.follow")
    if client.found is None:
        return Response(status_code=204)
    return await ai_sdk_resume_response(services, who, client.found)


async def ai_sdk_resume_response(
    services: "Services", who: Principal, session: Session
) -> Response:
    """Stream the run that is under way, for a reloaded page; an empty response if there is none."""
    followed = await follow_running(services, session)
    if followed is None:
        return Response(status_code=204)
    return _stream(services, who, followed, followed.execution_id)


def _stream(
    services: "Services",
    who: Principal,
    followed: FollowedExecution,
    message_id: str,
    seat: ExitStack | None = None,
) -> Response:
    stream = ExecutionStream(services, followed, AiSdkTranslator(message_id))
    return stream_response(
        services, who, stream, headers=AI_SDK_HEADERS, end=AI_SDK_DONE, seat=seat
    )


async def _client_session(
    services: "Services", who: Principal, session: Session | None, posted: dict[str, Any]
) -> ClientSession:
    if session is not None:
        return ClientSession(session.id, session)
    name = posted.get("id")
    if not isinstance(name, str) or not name:
        return UNNAMED
    return await find_client_session(services, who, PROTOCOL, name)


def _read(body: bytes) -> tuple[dict[str, Any], Sequence[UiMessage]]:
    try:
        posted = dict(read_json(body))
        given = posted.get("messages")
        if not isinstance(given, list) or not given:
            raise ClientInputError("messages must be a list with a message")
        return posted, ui_messages(cast("list[Any]", given))
    except ClientInputError as error:
        raise RefusedError(str(error), code="bad_input") from None


def _request(
    posted: dict[str, Any], messages: Sequence[UiMessage], paused: Execution | None
) -> ClientRequest:
    last = messages[-1]
    if last.role == "user":
        message = ClientText(last.id, _text(last))
        return ClientRequest(messages=(message,), named=(PROTOCOL, str(posted.get("id"))))
    questions = () if paused is None else paused.questions
    answers: list[tuple[str, Any]] = []
    for asked in questions:
        id = asked["question_id"]
        found = find_answer(messages, question_id=id, kind=asked["kind"])
        if found is not None:
            answers.append((id, found[0]))
    if last.tools and not answers:
        raise QuestionChangedError(
            f"{last.where} answers no current question; load the session again",
            code="question_changed" if questions else "not_waiting",
            pending=questions,
        )
    return ClientRequest(answers=tuple(answers))


def _text(message: UiMessage) -> str:
    parts = [part for one in message.history for part in one.parts]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) != len(parts):
        raise RefusedError(
            f"{message.where} has a file; sessions accept text only", code="text_only"
        )
    return "\n".join(texts)
