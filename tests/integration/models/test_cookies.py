"""A cookie that a remote server sets is neither kept nor sent back, by any of the HTTP clients."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.broadcasting.broadcasters.pusher import PusherBroadcaster
from stepwell.capabilities.mcp import McpServer
from stepwell.models.http import HttpCall, send
from tests.integration.models.test_sent_back import ANSWERS, recorded
from tests.servers.byte_server import Answer, ByteServer
from tests.servers.weather_agent import WeatherAgent, model_at

COOKIE = "session=canary-cookie; Path=/; Max-Age=3600"
NO_STREAM, ACCEPTED, OK = 405, 202, 200
UNKNOWN_METHOD = {"code": -32601, "message": "Method not found"}


def setting_a_cookie(answer: Answer) -> Answer:
    return replace(answer, headers={**answer.headers, "set-cookie": COOKIE})


def cookies_in(server: ByteServer) -> list[str | None]:
    return [request.headers.get("cookie") for request in server.requests]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", sorted(ANSWERS))
async def test_a_provider_gets_no_cookie_back(byte_server, wire: str, streamed: bool):
    answers = (recorded(wire, name, streamed=streamed) for name in ANSWERS[wire])
    byte_server.script(*map(setting_a_cookie, answers))
    weather = WeatherAgent(model_at(byte_server.url, wire))
    await weather.run("How is it in Zürich and Lima?", streamed=streamed)

    assert cookies_in(byte_server) == [None, None]


async def test_an_error_answer_leaves_no_cookie_behind(byte_server):
    refusal = Answer.json({"error": {"message": "no"}}, status=400)
    byte_server.script(setting_a_cookie(refusal))
    for _ in range(2):
        await WeatherAgent(model_at(byte_server.url, "chat")).run("Hi", streamed=False)

    assert cookies_in(byte_server) == [None, None]


async def test_a_cookie_header_of_the_caller_is_sent_as_given(byte_server):
    byte_server.script(setting_a_cookie(Answer.json({})))
    call = HttpCall(
        owner="test",
        url=byte_server.url,
        headers={"cookie": "own=1"},
        body=b"{}",
        connect_timeout=30,
        read_timeout=30,
    )
    for _ in range(2):
        reply = await send(call)
        await reply.body()
        await reply.close()

    assert cookies_in(byte_server) == ["own=1", "own=1"]


async def test_a_pusher_api_gets_no_cookie_back(byte_server):
    byte_server.script(setting_a_cookie(Answer.json({})))
    pusher = PusherBroadcaster("3", "key", "a-secret", base_url=byte_server.url)
    for number in (1, 2):
        await pusher.broadcast("agent.s1", {"id": f"e{number}", "type": "agent.status"})

    assert cookies_in(byte_server) == [None, None]


@contextmanager
def mcp_server_with_cookies() -> Iterator[tuple[str, list[str | None]]]:
    """A minimal MCP server that sets a cookie with every answer; gives its address and the cookies
    that came."""
    came: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(NO_STREAM, None)

        def do_DELETE(self) -> None:
            self._answer(OK, None)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            result = _mcp_result(asked)
            self._answer(ACCEPTED if result is None else OK, result)

        def _answer(self, status: int, document: Any) -> None:
            came.append(self.headers.get("cookie"))
            body = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("set-cookie", COOKIE)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp", came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _mcp_result(asked: dict[str, Any]) -> dict[str, Any] | None:
    if "id" not in asked:
        return None
    results = {
        "initialize": {
            "protocolVersion": asked.get("params", {}).get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "cookies", "version": "1"},
        },
        "tools/list": {"tools": []},
    }
    result = results.get(asked["method"])
    told = {"error": UNKNOWN_METHOD} if result is None else {"result": result}
    return {"jsonrpc": "2.0", "id": asked["id"], **told}


async def test_an_mcp_server_gets_no_cookie_back():
    with mcp_server_with_cookies() as (url, came):
        async with McpServer.http(url) as server:
            assert server.tools == ()

    assert len(came) >= 3
    assert set(came) == {None}
