"""Errors under ``/v1/`` in the form of OpenAI's API, which its clients raise as exceptions."""

from typing import Any, cast

from msgspec import DecodeError, json
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepwell.server.problems import PROBLEM
from stepwell.text import json_bytes

PREFIX = "/v1/"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_KEPT_HEADERS = ("retry-after", "www-authenticate", "x-should-retry", "x-stepwell-session")
_UNKNOWN_MODEL = "agent_not_found"


def is_openai_path(scope: Scope) -> bool:
    """Whether the request is for OpenAI's API, wherever the app is mounted."""
    path = str(scope.get("path", "")).removeprefix(str(scope.get("root_path", "")).rstrip("/"))
    return scope["type"] == "http" and path.startswith(PREFIX)


class OpenAiErrors:
    """Rewrites problem documents of these routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        if not is_openai_path(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def send_in_shape(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is not None and message["type"] == "http.response.body":
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    headers = Headers(raw=start["headers"])
                    await openai_error(start["status"], headers, body)(scope, receive, send)
            else:
                await send(message)

        await self._app(scope, receive, send_in_shape)


def openai_error(status: int, headers: Headers, body: bytes) -> Response:
    """Return a problem document as OpenAI's error; invalid input has the status 400 there."""
    try:
        problem = cast("dict[str, Any]", json.decode(body))
    except DecodeError:
        problem = {}
    code = problem.get("code")
    if code == _UNKNOWN_MODEL:
        status, code = 404, "model_not_found"
    status = 400 if status == 422 else status
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    shown: dict[str, Any] = {"message": problem.get("detail", ""), "type": kind}
    kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
    error = {"error": {**shown, "param": None, "code": code}}
    return Response(json_bytes(error), status, media_type="application/json", headers=kept)


def _is_problem(start: Message) -> bool:
    content_type = Headers(raw=start["headers"]).get("content-type", "")
    return content_type.partition(";")[0] == PROBLEM
