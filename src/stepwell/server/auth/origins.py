"""Checks Host and Origin before anything else: which names the server has, which pages may call it.

The Host list prevents DNS rebinding. The Origin list keeps out foreign pages, also on WebSockets,
which browsers open across origins without a preflight. A request without an Origin is not from a
page, unless the browser marks it as cross-site, as it does for ``<script src>``.
"""

from collections.abc import Iterable

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from stepwell.errors import ConfigurationError
from stepwell.server.auth.hosts import (
    Authority,
    Origin,
    is_same_origin,
    parse_authority,
    parse_origin,
)
from stepwell.server.problems import problem

_REFUSED = 4403
_ALL_ADDRESSES = ("0.0.0.0", "::")
_METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
_FOREIGN = frozenset({"cross-site", "same-site"})
"""The values of Sec-Fetch-Site for pages of another origin, such as another port of the host."""
_FOR_ANYBODY = frozenset({"/health", "/ready"})
_FOR_PEOPLE = frozenset({"/", "/openapi.json"})
"""Paths that other pages may link to; browsers do not send the hash, which says what is shown."""
_FROM_FOREIGN_PAGE = (
    403,
    "origin_not_allowed",
    "Other pages may link to this page, but not load anything else.",
)
_HEADERS = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "X-Api-Key",
    "X-Requested-With",
    "X-Socket-Id",
    "X-Stepwell-User",
)


class OriginGuard:
    """Middleware for HTTP and WebSockets; works wherever it is mounted.

    Hosts are names, with a port or for all ports; ``*.example.com`` matches all subdomains, ``*``
    every host. Loopback names are always allowed. Origins are exact, such as
    ``https://app.example.com``; the server's own origin is always allowed.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        hosts = tuple(allowed_hosts)
        self._all_hosts = "*" in hosts
        named = (_host(text) for text in hosts if text != "*" and text[:2] != "*.")
        # A server can be bound to these, but no page has such an origin.
        self._hosts = frozenset(host for host in named if host.host not in _ALL_ADDRESSES)
        self._domains = tuple("." + _host(text[2:]).host for text in hosts if text[:2] == "*.")
        origins = {text: _origin(text) for text in allowed_origins}
        self._origins = frozenset(origins.values())
        self._app = _with_cors(app, origins) if origins else app
        self._plain_app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests to an allowed host that come from no page or an allowed one."""
        if scope["type"] not in ("http", "websocket"):
            await self._plain_app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _REFUSED, "reason": refusal[1]})
        else:
            status, code, detail = refusal
            await problem(status, code, detail)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        hosts = _values(scope, b"host")
        host = parse_authority(hosts[0]) if len(hosts) == 1 else None
        if host is None:
            return 400, "bad_host", "The request needs one Host header that names a host."
        if not self._answers(host):
            detail = f"This server does not answer for {host.host!r}; see allowed_hosts."
            return 421, "unknown_host", detail
        origins = _values(scope, b"origin")
        if not origins:
            return _FROM_FOREIGN_PAGE if _is_from_foreign_page(scope) else None
        origin = parse_origin(origins[0]) if len(origins) == 1 else None
        if origin is None or not self._admits(origin, scope["scheme"], host):
            detail = "Pages of this origin may not call this server; see allowed_origins."
            return 403, "origin_not_allowed", detail
        return None

    def _answers(self, host: Authority) -> bool:
        return (
            self._all_hosts
            or host.is_loopback
            or host in self._hosts
            or Authority(host.host) in self._hosts
            or host.host.endswith(self._domains)
        )

    def _admits(self, origin: Origin, scheme: str, host: Authority) -> bool:
        return origin in self._origins or is_same_origin(origin, scheme, host)


def _with_cors(app: ASGIApp, origins: dict[str, Origin]) -> ASGIApp:
    """Add CORS, so that pages of allowed origins can read the responses."""
    return CORSMiddleware(
        app,
        allow_origins=[_as_browsers_write(origin) for origin in origins.values()],
        allow_methods=_METHODS,
        allow_headers=_HEADERS,
        expose_headers=("Retry-After", "X-Stepwell-Session"),
    )


def _is_from_foreign_page(scope: Scope) -> bool:
    """Whether a foreign page requests something that is not public."""
    sites = {site.strip().lower() for site in _values(scope, b"sec-fetch-site")}
    if not sites & _FOREIGN:
        return False
    path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/")) or "/"
    is_followed = _values(scope, b"sec-fetch-dest") == ["document"]
    return path not in _FOR_ANYBODY and not (is_followed and path in _FOR_PEOPLE)


def _as_browsers_write(origin: Origin) -> str:
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    is_default = (origin.scheme, origin.port) in (("http", 80), ("https", 443))
    port = "" if origin.port is None or is_default else f":{origin.port}"
    return f"{origin.scheme}://{host}{port}"


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _host(text: str) -> Authority:
    authority = parse_authority(_with_brackets(text))
    if authority is None:
        raise ConfigurationError(
            f"allowed_hosts has {text!r}; give a name like 'example.com', 'example.com:8443', "
            "'*.example.com' or '[::1]', without a scheme, international names as xn--..."
        )
    return authority


def _origin(text: str) -> Origin:
    origin = parse_origin(text)
    if origin is None:
        raise ConfigurationError(
            f"allowed_origins has {text!r}; give origins in full, like 'https://app.example.com', "
            "without a path; '*' and 'null' are not possible"
        )
    return origin


def _with_brackets(text: str) -> str:
    """Return an IPv6 address with brackets, as in a Host header."""
    return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
