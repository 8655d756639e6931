"""What holds for every route: limits, headers, hosts, origins, mounting, defects."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import Mount

from stepwell.server.asgi import make_asgi
from stepwell.server.settings import ServerSettings
from tests.integration.server.serving import Address, Served, listening, serving

JSON = {"Content-Type": "application/json"}
SECURITY = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{", JSON, 400, "bad_json"),
        (b"\xff", JSON, 400, None),
        (b'{"content": "a"} trailing', JSON, 400, "bad_json"),
        (b'{"content": ' + b"9" * 5000 + b"}", JSON, 422, "json_too_complex"),
        ('{"content": "a"}'.encode("utf-16"), JSON, 400, "bad_encoding"),
        (b"[]", JSON, 422, "invalid_request"),
        (b"null", JSON, 422, "invalid_request"),
        (b"", JSON, 422, "invalid_request"),
        (b'{"content": "a"}', {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
        (b"content=a", {"Content-Type": "application/x-www-form-urlencoded"}, 415, None),
        (b"[" * 33, JSON, 422, "json_too_complex"),
        (b"[" + b"1," * 10_001 + b"1]", JSON, 422, "json_too_complex"),
        (b'"' + b"a" * 1024 * 1024 + b'"', JSON, 413, "body_too_large"),
    ],
)
async def test_a_bad_body_is_a_problem_and_does_nothing(
    served: Served, content: bytes, headers: dict[str, str], status: int, code: str | None
) -> None:
    async with served.client(headers=headers) as ada:
        answer = await ada.post("/agent/messages", content=content)
        listed = await ada.get("/agent/sessions")

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert code in (None, answer.json()["code"])
    assert listed.json()["items"] == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/agent/sessions", 200),
        ("GET", "/nowhere", 404),
        ("GET", "/agent/sessions/", 404),
        ("PUT", "/agent/sessions", 405),
        ("OPTIONS", "/agent/sessions", 405),
        ("POST", "/agent/messages", 422),
    ],
)
async def test_every_answer_has_the_security_headers(
    served: Served, method: str, path: str, status: int
) -> None:
    async with served.client() as ada:
        answer = await ada.request(method, path)

    assert answer.status_code == status
    assert {name: answer.headers[name] for name in SECURITY} == SECURITY
    assert "access-control-allow-origin" not in answer.headers
    assert "location" not in answer.headers


async def test_a_defect_is_logged_under_the_id_that_the_client_is_told(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenReader:
        async def steps(self, _id: str) -> None:
            raise RuntimeError("password=hunter2")

    services = replace(served.services, reader=BrokenReader())
    broken = replace(served, services=services, app=make_asgi(services))
    async with broken.client() as ada:
        sent = (await ada.post("/agent/messages", json={"content": "hello"})).json()
        with caplog.at_level(logging.ERROR):
            answer = await ada.get(f"/agent/executions/{sent['execution']['id']}/steps")

    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert "hunter2" not in answer.text
    assert "RuntimeError" not in answer.text
    assert {name: answer.headers[name] for name in SECURITY} == SECURITY
    error_id = answer.json()["instance"].removeprefix("urn:uuid:")
    assert error_id in caplog.text
    metrics = services.metrics
    assert metrics.errors.value() == 1
    route = "/agent/executions/{execution_id}/steps"
    assert metrics.requests.value(method="GET", route=route, status="500") == 1


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "evil.example"}, 421, "unknown_host"),
        ({"Origin": "https://evil.example"}, 403, "origin_not_allowed"),
        ({"Origin": "http://localhost"}, 200, None),
    ],
)
async def test_unknown_hosts_and_foreign_pages_are_turned_away(
    served: Served, headers: dict[str, str], status: int, code: str | None
) -> None:
    async with served.client(headers=headers) as ada:
        answer = await ada.get("/agent/sessions")

    assert answer.status_code == status
    assert answer.json().get("code") == code
    assert "access-control-allow-origin" not in answer.headers


async def test_pages_of_a_listed_origin_may_read_the_answers(folder: Path) -> None:
    settings = ServerSettings(allowed_origins=("https://app.example",))
    page = {"Origin": "https://app.example"}
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "Authorization",
    }
    async with serving(folder, server=settings) as served, served.client(headers=page) as ada:
        answer = await ada.get("/agent/sessions")
        before = await ada.options("/agent/messages", headers=asked)

    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert "x-stepwell-session" in exposed
    assert before.status_code == 200
    assert "access-control-allow-credentials" not in before.headers


async def test_the_application_may_refuse_more(folder: Path) -> None:
    def authorize(_who: Any, action: str, _thing: Any) -> bool:
        return action != "messages.send"

    async with serving(folder, authorize=authorize) as served, served.client() as ada:
        sent = await ada.post("/agent/messages", json={"content": "hello"})
        listed = await ada.get("/agent/sessions")

    assert (sent.status_code, sent.json()["code"]) == (403, "not_allowed")
    assert listed.json()["items"] == []


@pytest.mark.parametrize("host", [FastAPI, Starlette])
async def test_it_works_wherever_it_is_mounted(served: Served, host: type) -> None:
    outer = host(routes=[Mount("/assistant", app=served.app)])
    async with served.client(app=outer) as ada:
        sent = await ada.post("/assistant/agent/messages", json={"content": "hello"})
        assert sent.status_code == 202, sent.text
        session = sent.json()["session"]["id"]
        read = await ada.get(f"/assistant/agent/sessions/{session}")
        missing = await ada.get("/assistant/agent/sessions/none")
        document = (await ada.get("/assistant/openapi.json")).json()
        metrics = served.services.metrics

    assert read.status_code == 200
    assert missing.json()["code"] == "session_not_found"
    assert document["servers"] == [{"url": "/assistant"}]
    assert "/agent/sessions" in document["paths"]
    route = "/agent/sessions/{session_id}"
    assert metrics.requests.value(method="GET", route=route, status="200") == 1


async def test_a_real_server_takes_a_message_and_its_worker_answers(address: Address) -> None:
    async with address.client() as ada:
        sent = (await ada.post("/agent/messages", json={"content": "add"})).json()
        url = f"/agent/executions/{sent['execution']['id']}"
        for _ in range(1000):
            execution = (await ada.get(url)).json()
            if execution["status"] == "completed":
                break
            await asyncio.sleep(0.02)

    assert (execution["status"], execution["step_count"]) == ("completed", 2)


async def test_a_body_without_a_declared_length_is_counted_as_it_comes(address: Address) -> None:
    async def endless() -> Any:
        yield b'{"content": "'
        for _ in range(40):
            yield b"a" * 65536

    async with address.client() as ada:
        answer = await ada.post("/agent/messages", content=endless(), headers=JSON)

    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


async def test_a_mounted_server_behind_a_socket_is_reached_too(served: Served) -> None:
    outer = Starlette(routes=[Mount("/assistant", app=served.app)])
    async with listening(served, app=outer) as address, address.client() as ada:
        answer = await ada.get("/assistant/ready")

    assert answer.status_code == 200
