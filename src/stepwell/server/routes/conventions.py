"""What all routes share: documentation, responses and dependencies."""

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, cast

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from stepwell.server.limits import RateLimit
from stepwell.server.policy import Access, access
from stepwell.server.problems import PROBLEM
from stepwell.server.services import Services, services_of
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import TooManyError
from stepwell.text import json_bytes

_MEANINGS = {
    400: "The body is not JSON.",
    401: "No valid credentials.",
    403: "Signed in, but not allowed to do this.",
    404: "It does not exist, or belongs to somebody else.",
    408: "The body did not arrive in time.",
    409: "It conflicts with the current state.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "The request is invalid; `errors` names the fields.",
    429: "Too many requests; try again after `Retry-After` seconds.",
    500: "Internal error; the log has more under the id in `instance`.",
    503: "The database does not respond; try again.",
}
_ALWAYS = (401, 403, 422, 500, 503)
_CHUNK = 256 * 1024
WITH_BODY = (400, 408, 413, 415)
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait."}}

ServicesDep = Annotated[Services, Depends(services_of)]
AccessDep = Annotated[Access, Depends(access)]


async def check_send_rate(request: Request, access: AccessDep) -> Access:
    """Return the access for a route that creates work, within the user's rate limit."""
    limit = cast(RateLimit, request.app.state.send_limit)
    try:
        limit.take(access.principal.tenant_id, access.principal.user_id)
    except TooManyError:
        services_of(request).metrics.refused.add(limit="rate")
        raise
    return access


SendAccessDep = Annotated[Access, Depends(check_send_rate)]


def route_docs(operation_id: str, tag: str, *problems: int) -> dict[str, Any]:
    """Return the OpenAPI arguments of a route's decorator."""
    codes = sorted({*_ALWAYS, *problems})
    return {
        "operation_id": operation_id,
        "tags": [tag],
        "responses": {code: problem_response(code) for code in codes},
    }


def problem_response(code: int) -> dict[str, Any]:
    """Return the description of an error response; ``openapi`` adds its schema."""
    shown: dict[str, Any] = {
        "description": _MEANINGS[code],
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if code in (429, 503):
        shown["headers"] = _RETRY_AFTER
    return shown


def answer(view: Mapping[str, Any], status: int = 200) -> Response:
    """Return a view as JSON."""
    return Response(json_bytes(view), status_code=status, media_type="application/json")


def answer_in_chunks(*parts: bytes) -> Response:
    """Return large JSON text in chunks: a single write would block the event loop."""

    async def chunks() -> AsyncGenerator[bytes]:
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), _CHUNK):
                yield bytes(view[start : start + _CHUNK])

    length = {"Content-Length": str(sum(map(len, parts)))}
    return StreamingResponse(chunks(), media_type="application/json", headers=length)


def page_limit(asked: int | None, settings: ServerSettings) -> int:
    """Return the number of items of a page."""
    return min(settings.page_size if asked is None else asked, settings.max_page_size)
