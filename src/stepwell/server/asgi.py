"""The ASGI app: routes, limits and headers around the services. It can be mounted in any other app,
and starts nothing by itself."""

from collections.abc import Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepwell.server.auth.origins import OriginGuard
from stepwell.server.limits import BodyLimits, RateLimit
from stepwell.server.live.client_connection import connection_of
from stepwell.server.live.routes import live_router
from stepwell.server.openai.error_shape import OpenAiErrors
from stepwell.server.openai.routes import openai_router
from stepwell.server.policy import check_policies
from stepwell.server.problems import SECURITY_HEADERS, install_problems, problem
from stepwell.server.routes import (
    agents,
    channels,
    executions,
    keys,
    messages,
    operations,
    page,
    sessions,
)
from stepwell.server.services import Services

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_ROUTERS: tuple[APIRouter, ...] = (
    sessions.router,
    messages.router,
    executions.router,
    agents.router,
    keys.router,
    channels.router,
    operations.router,
    page.router,
)
_TAGS = [
    {"name": "sessions", "description": "Threads of messages that people see."},
    {"name": "messages", "description": "The messages of sessions."},
    {"name": "executions", "description": "Runs of agents: read, steer, explain."},
    {"name": "agents", "description": "Registered agents."},
    {"name": "keys", "description": "API keys."},
    {"name": "channels", "description": "Signatures for live channels."},
    {"name": "openai", "description": "OpenAI's API: the agents as models."},
    {"name": "operations", "description": "Health and metrics."},
]
_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


def make_asgi(services: Services, *, lifespan: Lifespan | None = None) -> FastAPI:
    """Return the app for these services; ``lifespan`` starts and stops what runs beside it."""
    app = FastAPI(
        title="Stepwell",
        version="1",
        summary="Sessions with tool-calling agents.",
        openapi_tags=_TAGS,
        # The document is a route with a policy; FastAPI's pages would load foreign scripts.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        # Its spans would contain whole URLs: stream tokens, search words.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    settings = services.settings
    app.state.services = services
    app.state.send_limit = RateLimit(settings.sends_per_second, settings.send_burst, services.clock)
    for router in _ROUTERS:
        app.include_router(router)
    app.include_router(live_router(services))
    app.include_router(openai_router(services))
    install_problems(app)
    # The middleware added last sees a request first.
    app.add_middleware(BodyLimits, settings=settings, metrics=services.metrics)
    app.add_middleware(
        OriginGuard,
        allowed_hosts=settings.allowed_hosts,
        allowed_origins=settings.allowed_origins,
    )
    app.add_middleware(OpenAiErrors)
    app.add_middleware(ResponseHeaders, services=services)
    check_policies(app)
    return app


class ResponseHeaders:
    """Adds security headers to every response, and counts it."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._metrics = services.metrics
        self._clock = services.clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        if connection_of(scope).is_spare and not _is_health_check(scope):
            await _refuse_full(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock.monotonic()
        # An exception becomes a 500 outside of here.
        status = 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                self._note_time(scope, self._clock.monotonic() - began)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            labels = _labels(scope)
            self._metrics.requests.add(status=str(status), **labels)

    def _note_time(self, scope: Scope, seconds: float) -> None:
        self._metrics.request_seconds.observe(seconds, **_labels(scope))


def _is_health_check(scope: Scope) -> bool:
    path = scope.get("path", "").removeprefix(scope.get("root_path", "").rstrip("/"))
    return scope["type"] == "http" and path in ("/health", "/ready")


async def _refuse_full(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1013})
        return
    detail = "The server has no free connection; try again later."
    headers = {"Connection": "close", "Retry-After": "5"}
    await problem(503, "too_many_connections", detail, headers=headers)(scope, receive, send)


def _labels(scope: MutableMapping[str, Any]) -> dict[str, str]:
    """Return method and path template; unknown ones become one label."""
    method = scope["method"] if scope["method"] in _METHODS else "OTHER"
    route = getattr(scope.get("route"), "path", None)
    return {"method": method, "route": route or "(none)"}
