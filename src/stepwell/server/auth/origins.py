"""Which names the server answers to, and which pages may call it: looked at before anything else.

The Host list keeps out DNS rebinding, the Origin list keeps out foreign pages, also on WebSockets,
which browsers open across origins without asking. Who sends no Origin is no page, unless the
browser says that a foreign page asks, as it does for ``<script src>``.
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
"""What browsers say of pages with another origin; another port of the same host is such a one."""
_FOR_ANYBODY = frozenset({"/health", "/ready"})
_FOR_PEOPLE = frozenset({"/", "/openapi.json"})
"""Where links of other pages may lead; the hash, which says what is shown, is not sent."""
_LOADED_BY_A_FOREIGN_PAGE = (
    403,
    "origin_not_allowed",
    "Other pages may link to the page here, and may not load anything else.",
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

    Hosts are names, with a port or for all ports; ``*.example.com`` means all below, ``*`` all
    there are. Loopback names are always answered. Origins are exact, as
    ``https://app.example.com``; the server's own is always allowed.
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
        # A server is bound to these, but no page comes from them.
        self._hosts = frozenset(host for host in named if host.host not in _ALL_ADDRESSES)
        self._domains = tuple("." + _host(text[2:]).host for text in hosts if text[:2] == "*.")
        origins = {text: _origin(text) for text in allowed_origins}
        self._origins = frozenset(origins.values())
        self._app = _with_cors(app, origins) if origins else app
        self._plain_app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what comes to a known name from no page or a known one."""
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
            return _LOADED_BY_A_FOREIGN_PAGE if _is_loaded_by_a_foreign_page(scope) else None
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
    """Browsers of listed origins are also told that they may read the answers."""
    return CORSMiddleware(
        app,
        allow_origins=[_as_browsers_write(origin) for origin in origins.values()],
        allow_methods=_METHODS,
        allow_headers=_HEADERS,
        expose_headers=("Retry-After", "X-Stepwell-Session"),
    )


def _is_loaded_by_a_foreign_page(scope: Scope) -> bool:
    """Whether a page of another origin, or a link there, asks for what is not for everybody."""
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
    authority = parse_authority(_bracketed(text))
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


def _bracketed(text: str) -> str:
    """An IPv6 address as a Host header has it, also if it was given without brackets."""
    return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
