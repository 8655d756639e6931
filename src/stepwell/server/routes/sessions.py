"""Sessions: create, list, read, change."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from stepwell.journal.status import ExecutionStatus
from stepwell.server.bodies import ContextBody, SessionBody, SessionChanges, SessionQuery
from stepwell.server.pages import cursor_of, cut, place_of
from stepwell.server.policy import Access, NotAllowedError
from stepwell.server.routes.conventions import (
    WITH_BODY,
    AccessDep,
    SendAccessDep,
    ServicesDep,
    answer,
    check_send_rate,
    page_limit,
    route_docs,
)
from stepwell.server.routes.shapes import SessionPage, SessionShape
from stepwell.server.views import session_item_view, session_view
from stepwell.sessions.intake.contexts import Context
from stepwell.sessions.intake.intake import NewSession
from stepwell.sessions.ports import SessionFilter, Transaction
from stepwell.sessions.records import Session

router = APIRouter(prefix="/agent")
_TAG = "sessions"


@router.post(
    "/sessions",
    status_code=201,
    response_model=SessionShape,
    **route_docs("create_session", _TAG, *WITH_BODY, 429),
)
async def create_session(
    body: SessionBody, access: SendAccessDep, services: ServicesDep
) -> Response:
    """Create a session without a message."""
    session = await services.intake.create_session(access.principal, new_session(body))
    return answer(session_view(session), 201)


@router.get("/sessions", response_model=SessionPage, **route_docs("list_sessions", _TAG, 429))
async def list_sessions(
    request: Request,
    query: Annotated[SessionQuery, Query()],
    access: AccessDep,
    services: ServicesDep,
) -> Response:
    """List one's own sessions, or for administrators those of the tenant, last changed first."""
    if query.search is not None:
        # A search costs the database as much as a message, or more.
        await check_send_rate(request, access)
    limit = page_limit(query.limit, services.settings)
    which = SessionFilter(
        tenant_id=access.principal.tenant_id,
        user_id=whose(access, query.user_id, "sessions"),
        status=query.status,
        agent_type=query.agent_type,
        related_type=query.related_type,
        related_id=query.related_id,
        search=query.search,
    )
    before = place_of(query.cursor)

    async def look(tx: Transaction) -> tuple[Sequence[Session], Mapping[str, ExecutionStatus]]:
        found = await tx.sessions(which, before=before, limit=limit + 1)
        return found, await tx.session_statuses([each.id for each in found])

    rows, statuses = await services.store.read(look)
    shown, has_more = cut(rows, limit)
    following = cursor_of(shown[-1].updated_at, shown[-1].id) if has_more else None
    items = [session_item_view(each, statuses.get(each.id)) for each in shown]
    return answer({"items": items, "next": following})


@router.get(
    "/sessions/{session_id}", response_model=SessionShape, **route_docs("get_session", _TAG, 404)
)
async def get_session(access: AccessDep) -> Response:
    """Read a session."""
    return answer(session_view(the_session(access)))


@router.patch(
    "/sessions/{session_id}",
    response_model=SessionShape,
    **route_docs("change_session", _TAG, *WITH_BODY, 404, 409),
)
async def change_session(
    body: SessionChanges, access: AccessDep, services: ServicesDep
) -> Response:
    """Rename, archive, close or reactivate a session, or set what happens while it is busy."""
    given = body.model_fields_set
    session = await services.lifecycle.change_session(
        the_session(access).id,
        title=body.title if "title" in given else UNSET,
        status=body.status if "status" in given else UNSET,
        when_busy=body.when_busy if "when_busy" in given else UNSET,
        metadata=body.metadata if "metadata" in given else UNSET,
    )
    return answer(session_view(session))


def the_session(access: Access) -> Session:
    """Return the session that the path names; the guard has loaded it."""
    assert access.session is not None, "the policy of this route loads the session"
    return access.session


def new_session(body: SessionBody) -> NewSession:
    """Return the new session that a body describes."""
    return NewSession(
        agent_type=body.agent_type,
        title=body.title,
        when_busy=body.when_busy,
        context=replace(context_of(body), context_url=body.context_url or body.initial_context_url),
        metadata=body.metadata,
    )


def context_of(body: ContextBody) -> Context:
    """Return the context in a body."""
    return Context(
        related_type=body.related_type,
        related_id=body.related_id,
        context_url=body.context_url,
    )


def whose(access: Access, wanted: str | None, what: str) -> str | None:
    """Return whose objects a list shows: one's own, or for administrators any user's or all."""
    who = access.principal
    if who.is_admin:
        return wanted
    if wanted not in (None, who.user_id):
        raise NotAllowedError(f"list the {what} of another user")
    return who.user_id
