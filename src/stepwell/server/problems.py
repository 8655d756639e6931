"""Turns every error into a problem document (RFC 9457).

``code`` is for programs and stable; ``detail`` is for people. For a defect the client gets only an
id, under which the log has the rest.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import AgentNotFoundError
from stepwell.server.services import services_of
from stepwell.sessions.errors import (
    ConflictError,
    NotThereError,
    QuestionChangedError,
    RefusedError,
    SessionError,
    StoreUnavailableError,
    TooManyError,
)
from stepwell.text import json_bytes, replace_half_characters, truncate

PROBLEM = "application/problem+json"
SECURITY_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    # Allowed pages use CORS, which this does not affect.
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STATUS: Sequence[tuple[type[SessionError], int]] = (
    (NotThereError, 404),
    (ConflictError, 409),
    (RefusedError, 422),
    (TooManyError, 429),
    (StoreUnavailableError, 503),
)
_CODES = {
    400: "bad_request",
    401: "not_signed_in",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
    421: "misdirected_request",
    429: "too_many_requests",
}
_MOST_ERRORS = 20
_LONGEST_WORD = 200

log = logging.getLogger("stepwell.server")


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Iterable[Mapping[str, Any]] | None = None,
    pending: Iterable[Mapping[str, Any]] | None = None,
    instance: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return an error response."""
    document: dict[str, Any] = {
        "type": f"urn:stepwell:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": replace_half_characters(detail),
        "code": code,
    }
    if instance is not None:
        document["instance"] = instance
    if errors is not None:
        document["errors"] = list(errors)
    if pending is not None:
        document["pending"] = list(pending)
    return Response(
        json_bytes(document),
        status_code=status,
        media_type=PROBLEM,
        headers={**SECURITY_HEADERS, **(headers or {})},
    )


def install_problems(app: FastAPI) -> None:
    """Make every error of the app a problem document."""
    app.add_exception_handler(SessionError, _of_session_error)
    app.add_exception_handler(AgentNotFoundError, _of_unknown_agent)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http_exception)
    app.add_exception_handler(Exception, _of_defect)


async def _of_session_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SessionError)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), None)
    if status is None:
        return await _of_defect(request, error)
    if isinstance(error, StoreUnavailableError):
        # Its text names hosts and statements, so it is for the log only.
        log.warning("the store is unavailable: %s", error)
        detail = "The database does not respond; the change is applied whole or not at all. Retry."
        if error.reason is not None:
            detail = f"The database can't be used: {error.reason}. Nothing was changed."
        return problem(503, error.code, detail, headers={"Retry-After": "1"})
    headers = _retry_after(error) if isinstance(error, TooManyError) else None
    pending = error.pending if isinstance(error, QuestionChangedError) else None
    return problem(status, error.code, str(error), headers=headers, pending=pending)


def _retry_after(error: TooManyError) -> Mapping[str, str]:
    # Without it clients retry at once.
    return {"Retry-After": str(max(1, ceil(error.retry_after or 1.0)))}


async def _of_unknown_agent(_request: Request, error: Exception) -> Response:
    return problem(422, "agent_not_found", str(error))


async def _of_validation(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = cast(Sequence[Mapping[str, Any]], error.errors())
    if any(each["type"] == "json_invalid" for each in found):
        place = found[0]["loc"][-1]
        return problem(400, "bad_json", f"The body is not JSON: error at character {place}.")
    errors = [_field_error(each) for each in found[:_MOST_ERRORS]]
    return problem(422, "invalid_request", _summary(errors, len(found)), errors=errors)


def _field_error(found: Mapping[str, Any]) -> dict[str, str]:
    """Return place and reason without the value, which may be a secret sent by mistake."""
    place, *path = (_shorten(str(part)) for part in found["loc"])
    return {
        "in": place,
        "field": ".".join(path),
        "message": _shorten(str(found["msg"])),
        "code": str(found["type"]),
    }


def _summary(errors: Sequence[Mapping[str, str]], number: int) -> str:
    first = errors[0]
    where = f"{first['in']} {first['field']}".strip()
    more = f" There are {number - 1} more." if number > 1 else ""
    return f"{where}: {first['message']}.{more}"


def _shorten(text: str) -> str:
    return truncate(replace_half_characters(text), _LONGEST_WORD)


async def _of_http_exception(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    # Errors of the policy have a code of their own.
    code = str(getattr(error, "code", _CODES.get(error.status_code, "http_error")))
    if error.status_code in (204, 304):
        return Response(status_code=error.status_code, headers=error.headers)
    return problem(error.status_code, code, str(error.detail), headers=error.headers)


async def _of_defect(request: Request, error: Exception) -> Response:
    services = services_of(request)
    services.metrics.errors.add()
    error_id = services.new_id()
    path = replace_half_characters(request.url.path)
    log.error("error %s at %s %r", error_id, request.method, path, exc_info=error)
    detail = f"Internal error; see error {error_id} in the server's log."
    return problem(500, "internal_error", detail, instance=f"urn:uuid:{error_id}")
