"""The live routes: streams of a session, the socket, and stream tokens."""

from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Header, Query, Request, WebSocket
from starlette.responses import Response

from stepwell.journal.envelope import timestamp
from stepwell.server.live.ag_ui import ag_ui_response
from stepwell.server.live.ai_sdk import (
    ai_sdk_chat_resume_response,
    ai_sdk_response,
    ai_sdk_resume_response,
)
from stepwell.server.live.pusher import SocketLimits, serve_pusher
from stepwell.server.live.response import cursor_of, sse_response
from stepwell.server.routes.conventions import (
    WITH_BODY,
    AccessDep,
    SendAccessDep,
    answer,
    route_docs,
)
from stepwell.sessions.records import Session

if TYPE_CHECKING:
    from stepwell.server.services import Services


def live_router(services: "Services") -> APIRouter:
    """Return the router with all live routes."""
    router = APIRouter()
    limits = SocketLimits(join_seconds=services.settings.socket_join_seconds)
    _add_streams(router, services)
    _add_protocols(router, services)
    _add_sockets(router, services, limits)
    return router


def _add_streams(router: APIRouter, services: "Services") -> None:
    @router.get("/agent/sessions/{session_id}/events", **_route_docs("follow_session"))
    async def follow(
        access: AccessDep,
        after: Annotated[
            int | None, Query(ge=0, le=2**53, description="Tell what came behind this number.")
        ] = None,
        execution: Annotated[
            str | None, Query(max_length=64, description="End when this execution is over.")
        ] = None,
        last_event_id: Annotated[
            str | None, Header(description="As browsers send it; goes before `after`.")
        ] = None,
    ) -> Response:
        """Follow a session by server-sent events: first what came after the cursor, then what is
        new."""
        cursor = cursor_of(last_event_id, after)
        session = cast(Session, access.session)
        return await sse_response(
            services, access.principal, session, after=cursor, execution_id=execution
        )

    @router.post(
        "/agent/sessions/{session_id}/stream-token",
        status_code=201,
        **route_docs("make_stream_token", "live", 404),
    )
    async def make_token(access: AccessDep) -> Response:
        """Create a token for streams of a session, valid for a minute. Browsers send it as
        `?token=`, since their EventSource can't send headers."""
        session = cast(Session, access.session)
        made = services.stream_tokens.make(access.principal, session.id)
        return answer({"token": made.token, "expires_at": timestamp(made.expires_at)}, 201)


def _add_sockets(router: APIRouter, services: "Services", limits: SocketLimits) -> None:
    @router.websocket("/app/{key}")
    async def socket(websocket: WebSocket, key: str) -> None:
        await serve_pusher(services, websocket, key, limits)


def _add_protocols(router: APIRouter, services: "Services") -> None:
    @router.post("/agent/sessions/{session_id}/ag-ui", **_route_docs("run_ag_ui"))
    async def run_ag_ui(request: Request, access: SendAccessDep) -> Response:
        """Send the input of an AG-UI client, and follow the run by AG-UI events."""
        return await ag_ui_response(
            services, access.principal, access.session, await request.body()
        )

    @router.post("/agent/ag-ui", **_route_docs("begin_ag_ui"))
    async def begin_ag_ui(request: Request, access: SendAccessDep) -> Response:
        """Do the same in the user's session that the thread's id names, or in a new one. The header
        x-stepwell-session has its id."""
        return await ag_ui_response(services, access.principal, None, await request.body())

    @router.post("/agent/sessions/{session_id}/ai-sdk", **_route_docs("run_ai_sdk"))
    async def run_ai_sdk(request: Request, access: SendAccessDep) -> Response:
        """Send what `useChat` of the AI SDK posts, and follow the run by its UI message stream."""
        return await ai_sdk_response(
            services, access.principal, access.session, await request.body()
        )

    @router.post("/agent/ai-sdk", **_route_docs("begin_ai_sdk"))
    async def begin_ai_sdk(request: Request, access: SendAccessDep) -> Response:
        """Do the same in the user's session that the chat's id names, or in a new one. The header
        x-stepwell-session has its id."""
        return await ai_sdk_response(services, access.principal, None, await request.body())

    @router.get("/agent/ai-sdk/{chat}/stream", **_route_docs("resume_ai_sdk_chat"))
    async def resume_ai_sdk_chat(access: AccessDep, chat: str) -> Response:
        """Follow the run that is under way in the session that the chat's id names."""
        return await ai_sdk_chat_resume_response(services, access.principal, chat)

    @router.get("/agent/sessions/{session_id}/ai-sdk/{chat}/stream", **_route_docs("resume_ai_sdk"))
    async def resume_ai_sdk(access: AccessDep, chat: str) -> Response:
        """Follow the running execution from its beginning, after a page was reloaded."""
        del chat  # the client's own name for the session
        session = cast(Session, access.session)
        return await ai_sdk_resume_response(services, access.principal, session)


def _route_docs(operation_id: str) -> dict[str, Any]:
    stream: dict[str, Any] = {"content": {"text/event-stream": {}}, "description": "The stream"}
    described = route_docs(operation_id, "live", *WITH_BODY, 404, 409, 429)
    described["responses"] = {200: stream, **described["responses"]}
    return {**described, "response_class": Response}
