"""Admits the requests of OpenAI clients, and answers them with a stream or as a whole."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from stepwell.protocols.client_stream import ClientInputError
from stepwell.protocols.openai import (
    ChatCompletionTranslator,
    OpenAiInput,
    ResponseTranslator,
    read_chat_input,
    read_responses_input,
)
from stepwell.protocols.openai.responses import RESPONSE_PREFIX, encode_response_event
from stepwell.protocols.openai.run_end import CompletionIds
from stepwell.server.live.client_request import ClientRequest, ClientText, admit_request
from stepwell.server.live.client_session import UNNAMED, ClientSession, find_client_session
from stepwell.server.live.execution_stream import (
    SESSION_HEADER,
    ExecutionStream,
    FollowedExecution,
    stream_response,
)
from stepwell.server.live.response import SSE_HEADERS
from stepwell.server.openai.whole_response import WholeResponse
from stepwell.server.policy import require
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.intake.intake import NewSession
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Session

if TYPE_CHECKING:
    from stepwell.server.services import Services

BodyReader = Callable[[bytes], OpenAiInput]

PROTOCOL = "openai"
DONE = b"data: [DONE]\n\n"
_LONGEST_NAME = 200


async def chat_completion(services: "Services", who: Principal, request: Request) -> Response:
    """Answer a chat completion. The header X-Stepwell-Session names its session; without it the
    request's messages are the history of a new one."""
    given = _read(read_chat_input, await request.body())
    client = await _named_session(services, who, request)
    with ExitStack() as leaving:
        leaving.enter_context(services.feeds.seats.hold(who))
        followed = await _admit(services, who, client, given, request)
        seat = leaving.pop_all()
    ids = _ids(services, request, followed, given.model)
    translator = ChatCompletionTranslator(ids, include_usage=given.include_usage)
    stream = ExecutionStream(services, followed, translator)
    if not given.stream:
        return WholeResponse(services, who, stream, translator.result, seat)
    return stream_response(services, who, stream, headers=SSE_HEADERS, end=DONE, seat=seat)


async def create_response(services: "Services", who: Principal, request: Request) -> Response:
    """Answer a request for a response. ``previous_response_id`` continues a session, and the header
    X-Stepwell-Session names one; without both the input's messages are the history of a new one."""
    given = _read(read_responses_input, await request.body())
    previous = given.previous_response_id
    if previous is None:
        client = await _named_session(services, who, request)
    else:
        client = await _previous_session(services, who, previous)
    with ExitStack() as leaving:
        leaving.enter_context(services.feeds.seats.hold(who))
        followed = await _admit(services, who, client, given, request)
        seat = leaving.pop_all()
    ids = _ids(services, request, followed, given.model)
    translator = ResponseTranslator(ids, previous_response_id=previous)
    stream = ExecutionStream(services, followed, translator)
    if not given.stream:
        return WholeResponse(services, who, stream, translator.result, seat)
    return stream_response(
        services, who, stream, headers=SSE_HEADERS, encode=encode_response_event, seat=seat
    )


async def _admit(
    services: "Services",
    who: Principal,
    client: ClientSession,
    given: OpenAiInput,
    request: Request,
) -> FollowedExecution:
    agent = services.agents.get(given.model)
    session = client.found
    if session is not None and session.agent_type != agent.name:
        raise RefusedError(
            f"session {session.id} belongs to the model {session.agent_type!r}, not "
            f"{agent.name!r}; use that model, or another session",
            code="other_model",
        )
    key = request.headers.get("idempotency-key") or services.new_id()
    new = NewSession(agent_type=agent.name, history=given.history)
    sent = ClientRequest(
        messages=(ClientText(key, given.text),), named=(PROTOCOL,), new_session=new
    )
    return await admit_request(services, who, client, sent)


async def _named_session(services: "Services", who: Principal, request: Request) -> ClientSession:
    name = request.headers.get(SESSION_HEADER)
    if not name:
        return UNNAMED
    if len(name) > _LONGEST_NAME:
        raise RefusedError(
            f"X-Stepwell-Session has {len(name)} characters; {_LONGEST_NAME} are allowed",
            code="bad_session_name",
        )
    return await find_client_session(services, who, PROTOCOL, name)


async def _previous_session(
    services: "Services", who: Principal, response_id: str
) -> ClientSession:
    id = response_id.removeprefix(RESPONSE_PREFIX)

    async def look(tx: Transaction) -> Session | None:
        execution = await tx.execution(id)
        found = None if execution is None else execution.session_id
        return None if found is None else await tx.session(found)

    is_id = id.isascii() and id.isprintable() and len(id) <= 64
    session = await services.store.read(look) if is_id else None
    if session is None or (session.tenant_id, session.user_id) != (who.tenant_id, who.user_id):
        raise NotThereError("response", response_id[:80])
    if session.last_execution_id != id:
        raise RefusedError(
            f"{response_id} is not the newest response of its session; continue with "
            f"{RESPONSE_PREFIX}{session.last_execution_id}",
            code="not_newest_response",
        )
    await require(services, who, "messages.send", session)
    return ClientSession(session.id, session)


def _read(reader: BodyReader, body: bytes) -> OpenAiInput:
    try:
        return reader(body)
    except ClientInputError as error:
        raise RefusedError(str(error), code="invalid_request") from None


def _ids(
    services: "Services", request: Request, followed: FollowedExecution, model: str
) -> CompletionIds:
    return CompletionIds(
        execution_id=followed.execution_id,
        session_id=followed.session_id,
        model=model,
        created=int(services.clock.now().timestamp()),
        root_path=str(request.scope.get("root_path", "")).rstrip("/"),
    )
