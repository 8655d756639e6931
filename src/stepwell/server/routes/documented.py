"""What all routes share: how they are documented, how they answer, and what they depend on."""

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, cast

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from stepwell.journal.json_text import json_text
from stepwell.server.limits import RateLimit
from stepwell.server.policy import Access, access
from stepwell.server.problems import PROBLEM
from stepwell.server.services import Services, services_of
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import TooManyError

_MEANINGS = {
    400: "The body is no JSON.",
    401: "Nobody signed in, or not with something valid.",
    403: "Signed in, but not allowed to do this.",
    404: "There is no such thing, or it is somebody else's.",
    408: "The body did not arrive in time.",
    409: "It does not go with how things stand.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "Something that was sent does not fit; `errors` names the fields.",
    429: "Too much at once; try again after `Retry-After` seconds.",
    500: "A defect; the log knows more under the id in `instance`.",
    503: "The database does not answer; try again.",
}
_ALWAYS = (401, 403, 422, 500, 503)
_CHUNK = 256 * 1024
WITH_BODY = (400, 408, 413, 415)
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait."}}

ServicesDep = Annotated[Services, Depends(services_of)]
AccessDep = Annotated[Access, Depends(access)]


async def sending(request: Request, access: AccessDep) -> Access:
    """Access for a route that makes work, within the rate of the user."""
    limit = cast(RateLimit, request.app.state.send_limit)
    try:
        limit.take(access.principal.tenant_id, access.principal.user_id)
    except TooManyError:
        services_of(request).metrics.refused.add(limit="rate")
        raise
    return access


SendingDep = Annotated[Access, Depends(sending)]


def documented(operation_id: str, tag: str, *problems: int) -> dict[str, Any]:
    """What a route's decorator is given beside path and response model."""
    codes = sorted({*_ALWAYS, *problems})
    return {
        "operation_id": operation_id,
        "tags": [tag],
        "responses": {code: problem_response(code) for code in codes},
    }


def problem_response(code: int) -> dict[str, Any]:
    """How an error is described; ``openapi`` adds the schema that it refers to."""
    shown: dict[str, Any] = {
        "description": _MEANINGS[code],
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if code in (429, 503):
        shown["headers"] = _RETRY_AFTER
    return shown


def answer(view: Mapping[str, Any], status: int = 200) -> Response:
    """A view as the answer."""
    return Response(json_text(view), status_code=status, media_type="application/json")


def answer_in_chunks(*parts: bytes) -> Response:
    """JSON text that may be large, written piece by piece: a single write would hold the loop."""

    async def chunks() -> AsyncGenerator[bytes]:
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), _CHUNK):
                yield bytes(view[start : start + _CHUNK])

    length = {"Content-Length": str(sum(map(len, parts)))}
    return StreamingResponse(chunks(), media_type="application/json", headers=length)


def page_limit(asked: int | None, settings: ServerSettings) -> int:
    """How many items a page has."""
    return min(settings.page_size if asked is None else asked, settings.max_page_size)
