"""Hosts and origins are checked before anything else, on HTTP and on WebSockets."""

from typing import Any

import msgspec
import pytest
from fastapi import FastAPI, WebSocket
from starlette.types import Message

from stepwell.errors import ConfigurationError
from stepwell.server.auth.origins import OriginGuard

Headers = list[tuple[bytes, bytes]]


async def asked(app: Any, headers: Headers, **more: Any) -> list[Message]:
    """What the app sends for a request, or for a socket that is closed at once."""
    scope = {
        "type": "http", "method": "GET", "path": "/x", "raw_path": b"/x", "query_string": b"",
        "scheme": "http", "headers": headers, "root_path": "", **more,
    }  # fmt: skip
    sent: list[Message] = []
    is_http = scope["type"] == "http"
    incoming = iter(
        [{"type": "http.request", "body": b"", "more_body": False}]
        if is_http
        else [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]
    )

    async def receive() -> Message:
        return next(incoming)

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def inner() -> FastAPI:
    app = FastAPI()

    @app.get("/x")
    async def x() -> str:
        return "reached"

    @app.websocket("/x")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()

    return app


def guard(**settings: Any) -> OriginGuard:
    return OriginGuard(inner(), **settings)


async def status(app: Any, host: str | None, origin: str | None = None, **more: Any) -> int:
    headers: Headers = [] if host is None else [(b"host", host.encode("latin-1"))]
    if origin is not None:
        headers.append((b"origin", origin.encode("latin-1")))
    return (await asked(app, headers, **more))[0]["status"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST.:1"])
async def test_loopback_names_are_answered_without_being_listed(host: str) -> None:
    assert await status(guard(), host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "0.0.0.0:8000", "127.1"]
)
async def test_other_names_are_misdirected(host: str) -> None:
    sent = await asked(guard(), [(b"host", host.encode())])
    assert sent[0]["status"] == 421
    document = msgspec.json.decode(sent[1]["body"])
    assert document["code"] == "unknown_host"
    assert document["status"] == 421


@pytest.mark.parametrize("host", [None, "", "a@localhost", "localhost/x", "localhost:x", "\xfc"])
async def test_a_host_that_is_none_is_a_bad_request(host: str | None) -> None:
    assert await status(guard(allowed_hosts=["*"]), host) == 400


async def test_two_host_headers_are_a_bad_request() -> None:
    sent = await asked(guard(), [(b"host", b"localhost"), (b"host", b"localhost")])
    assert sent[0]["status"] == 400


@pytest.mark.parametrize(
    ("listed", "host", "expected"),
    [
        ("app.example", "APP.example.", 200),
        ("app.example", "app.example:9", 200),
        ("app.example", "x.app.example", 421),
        ("app.example:8443", "app.example:8443", 200),
        ("app.example:8443", "app.example", 421),
        ("*.app.example", "x.app.example:1", 200),
        ("*.app.example", "app.example", 421),
        ("*.app.example", "xapp.example", 421),
        ("[2001:db8::1]", "[2001:DB8:0::1]:80", 200),
        ("2001:db8::1", "[2001:db8::1]", 200),
        ("0.0.0.0", "0.0.0.0:8000", 421),
        ("::", "[::]:8000", 421),
        ("*", "any.thing", 200),
    ],
)
async def test_listed_names_are_answered(listed: str, host: str, expected: int) -> None:
    assert await status(guard(allowed_hosts=[listed]), host) == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, 200),
        ("http://localhost:8000", 200),
        ("http://LOCALHOST.:8000", 200),
        ("https://app.example", 200),
        ("https://APP.example:443", 200),
        ("http://app.example", 403),
        ("https://app.example:8443", 403),
        ("https://app.example.evil.example", 403),
        ("https://app.example@evil.example", 403),
        ("http://localhost:8001", 403),
        ("http://localhost", 403),
        ("null", 403),
        ("", 403),
        ("*", 403),
        ("file://", 403),
    ],
)
async def test_only_the_own_page_and_listed_ones_may_call(
    origin: str | None, expected: int
) -> None:
    app = guard(allowed_origins=["https://app.example"])
    assert await status(app, "localhost:8000", origin) == expected


async def test_two_origin_headers_are_refused() -> None:
    own = (b"origin", b"http://localhost")
    sent = await asked(guard(), [(b"host", b"localhost"), own, own])
    assert sent[0]["status"] == 403


async def test_a_forwarded_host_does_not_count() -> None:
    headers = [(b"host", b"evil.example"), (b"x-forwarded-host", b"localhost")]
    assert (await asked(guard(), headers))[0]["status"] == 421


@pytest.mark.parametrize(
    ("host", "origin"),
    [("localhost", "http://evil.example"), ("localhost", "null"), ("evil.example", None)],
)
async def test_a_refused_socket_is_closed_before_it_is_accepted(
    host: str, origin: str | None
) -> None:
    headers = [(b"host", host.encode())]
    headers += [(b"origin", origin.encode())] if origin else []
    sent = await asked(guard(), headers, type="websocket", scheme="ws")
    assert [(message["type"], message["code"]) for message in sent] == [("websocket.close", 4403)]


@pytest.mark.parametrize("origin", [None, b"http://localhost:8000", b"https://app.example"])
async def test_a_socket_of_a_known_page_is_accepted(origin: bytes | None) -> None:
    headers = [(b"host", b"localhost:8000")] + ([(b"origin", origin)] if origin else [])
    app = guard(allowed_origins=["https://app.example"])
    sent = await asked(app, headers, type="websocket", scheme="ws", subprotocols=[])
    assert sent[0]["type"] == "websocket.accept"


async def test_it_works_when_mounted_under_a_path() -> None:
    outer = FastAPI()
    outer.mount("/agents", guard())
    assert await status(outer, "localhost", path="/agents/x", raw_path=b"/agents/x") == 200
    assert await status(outer, "evil.example", path="/agents/x", raw_path=b"/agents/x") == 421


async def test_listed_origins_are_told_that_they_may_read() -> None:
    app = guard(allowed_origins=["https://App.example:443"])
    headers = [(b"host", b"localhost"), (b"origin", b"https://app.example")]
    answer = (await asked(app, headers))[0]
    assert (b"access-control-allow-origin", b"https://app.example") in answer["headers"]
    assert not any(name == b"access-control-allow-credentials" for name, _ in answer["headers"])
    preflight = [
        *headers,
        (b"access-control-request-method", b"PATCH"),
        (b"access-control-request-headers", b"authorization, content-type"),
    ]
    assert (await asked(app, preflight, method="OPTIONS"))[0]["status"] == 200


async def test_what_is_neither_http_nor_a_socket_passes() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    await asked(OriginGuard(app, allowed_origins=["https://a.example"]), [], type="lifespan")
    assert seen == ["lifespan"]


@pytest.mark.parametrize("host", ["http://a.example", "a.example/x", "", "*.", "a b", "bücher.de"])
def test_a_wrong_host_in_the_list_is_told_at_once(host: str) -> None:
    with pytest.raises(ConfigurationError, match="allowed_hosts"):
        guard(allowed_hosts=[host])


@pytest.mark.parametrize("origin", ["*", "null", "app.example", "https://app.example/", ""])
def test_a_wrong_origin_in_the_list_is_told_at_once(origin: str) -> None:
    with pytest.raises(ConfigurationError, match="allowed_origins"):
        guard(allowed_origins=[origin])


async def fetched(site: str, path: str = "/x", **more: str) -> int:
    headers = {"host": "localhost:8400", "sec-fetch-site": site, **more}
    names = {"mode": "sec-fetch-mode", "dest": "sec-fetch-dest"}
    pairs = [(names.get(name, name).encode(), text.encode()) for name, text in headers.items()]
    app = OriginGuard(inner(), allowed_origins=["https://app.example"])
    return (await asked(app, pairs, path=path))[0]["status"]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE"])
async def test_what_a_foreign_page_loads_without_saying_who_it_is_is_refused(site: str) -> None:
    """As with ``<script src>``: browsers send no Origin then. Another port is another page."""
    assert await fetched(site, mode="no-cors", dest="script") == 403
    assert await fetched(site) == 403
    # A link that is followed, to what is nobody's page.
    assert await fetched(site, mode="navigate", dest="document") == 403
    assert await fetched(site, "/", mode="navigate", dest="iframe") == 403
    assert await fetched(site, "/ui/main.js", mode="no-cors", dest="script") == 403


async def test_links_to_the_page_may_be_followed_and_health_may_be_asked() -> None:
    assert await fetched("cross-site", "/", mode="navigate", dest="document") == 404
    assert await fetched("cross-site", "/openapi.json", mode="navigate", dest="document") == 200
    for path in ("/health", "/ready"):
        assert await fetched("cross-site", path, mode="no-cors", dest="image") == 404
    scope = {"path": "/ai/", "root_path": "/ai"}
    pairs = [
        (b"host", b"localhost"),
        (b"sec-fetch-site", b"cross-site"),
        (b"sec-fetch-mode", b"navigate"),
        (b"sec-fetch-dest", b"document"),
    ]
    assert (await asked(guard(), pairs, **scope))[0]["status"] == 404


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_the_own_page_and_people_are_let_through(site: str) -> None:
    assert await fetched(site, mode="cors", dest="empty") == 200
    assert await fetched(site, mode="navigate", dest="document") == 200


async def test_a_listed_page_says_who_it_is_and_is_let_through() -> None:
    assert await fetched("cross-site", mode="cors", origin="https://app.example") == 200
    assert await fetched("cross-site", mode="cors", origin="https://evil.example") == 403
