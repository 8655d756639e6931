"""Messages: send and list."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from stepwell.server.bodies import FirstMessageBody, MessageBody, MessageQuery
from stepwell.server.pages import cursor_of, cut, cut_last, place_of, within_characters
from stepwell.server.policy import NotAllowedError, require
from stepwell.server.routes.conventions import (
    WITH_BODY,
    AccessDep,
    SendAccessDep,
    ServicesDep,
    answer,
    page_limit,
    route_docs,
)
from stepwell.server.routes.sessions import context_of, new_session, the_session
from stepwell.server.routes.shapes import MessagePage, SentShape
from stepwell.server.services import Services
from stepwell.server.views import View, execution_view, message_view, sent_view
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, Session, SessionMessage
from stepwell.sessions.settled_seq import settled_seq

router = APIRouter(prefix="/agent")
_TAG = "messages"
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="A repeated send with the same key has no further effect.",
        examples=["3b0f7c52"],
    ),
]


@router.post(
    "/messages",
    status_code=202,
    response_model=SentShape,
    **route_docs("send_first_message", _TAG, *WITH_BODY, 409, 429),
)
async def send_first_message(
    body: FirstMessageBody,
    access: SendAccessDep,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Send a message that starts a session."""
    await require(services, access.principal, "sessions.create")
    message = NewMessage(
        content=body.content,
        new_session=new_session(body.session),
        context=context_of(body),
        metadata=body.metadata,
        idempotency_key=idempotency_key,
    )
    return await _send(services, access.principal, message)


@router.post(
    "/sessions/{session_id}/messages",
    status_code=202,
    response_model=SentShape,
    **route_docs("send_message", _TAG, *WITH_BODY, 404, 409, 429),
)
async def send_message(
    body: MessageBody,
    access: SendAccessDep,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Send a message to a session. Returns at once; an execution answers it."""
    message = NewMessage(
        content=body.content,
        session_id=the_session(access).id,
        context=context_of(body),
        metadata=body.metadata,
        idempotency_key=idempotency_key,
    )
    return await _send(services, access.principal, message)


@router.get(
    "/sessions/{session_id}/messages",
    response_model=MessagePage,
    **route_docs("list_messages", _TAG, 404),
)
async def list_messages(
    query: Annotated[MessageQuery, Query()], access: AccessDep, services: ServicesDep
) -> Response:
    """List messages by time: the last ones, those before a cursor, or those after one."""
    if query.before is not None and query.after is not None:
        raise RefusedError("give before or after, not both", code="two_cursors")
    session_id = the_session(access).id
    limit = page_limit(query.limit, services.settings)
    before, after = place_of(query.before), place_of(query.after)

    async def look(
        tx: Transaction,
    ) -> tuple[Sequence[SessionMessage], Session, Sequence[Execution]]:
        # In one read, so that the numbers of the log match these messages.
        session, unfinished = await tx.session(session_id), await tx.unfinished(session_id)
        if session is None:
            raise NotThereError("session", session_id)
        found = await tx.messages(session_id, before=before, after=after, limit=limit + 1)
        return found, session, unfinished

    rows, session, unfinished = await services.store.read(look)
    shown, has_more = cut_last(rows, limit) if after is None else cut(rows, limit)
    shown, is_cut = within_characters(shown, from_end=after is None)
    has_more = has_more or is_cut
    # An empty page leaves the cursor where it was.
    given = query.before or query.after
    places = [cursor_of(each.created_at, each.id) for each in shown] or [given]
    page = {
        "items": [message_view(each) for each in shown],
        "older": places[0],
        "newer": places[-1],
        "has_older": has_more if after is None else True,
        "has_newer": has_more if after is not None else before is not None,
        # Includes executions that they may not read: the log has their events.
        "settled_seq": settled_seq(session, unfinished),
        "last_seq": session.last_seq,
        "unfinished": await _readable(services, access.principal, unfinished),
    }
    return answer(page)


async def _readable(services: Services, who: Principal, found: Sequence[Execution]) -> list[View]:
    """Return the executions that the application lets them read."""
    views: list[View] = []
    for execution in found:
        with suppress(NotAllowedError):
            await require(services, who, "executions.read", execution)
            views.append(execution_view(execution))
    return views


async def _send(services: Services, who: Principal, message: NewMessage) -> Response:
    sent = await services.intake.send_message(who, message)
    result = "repeated" if sent.repeated else "steered" if sent.execution is None else "new"
    services.metrics.sends.add(result=result)
    return answer(sent_view(sent), 202)
