"""Keys fetched from a real endpoint: rotated, unreachable, broken, slow, asked for too often."""

import asyncio
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stepwell import Agent
from stepwell.app import AgentApp
from stepwell.app.config import AuthConfig, AuthMode, Config
from stepwell.clock import SystemClock
from stepwell.server.auth import JwtAuthenticator
from stepwell.testing import FakeClock, ScriptedModel
from tests.unit.server.auth.rows import connection
from tests.unit.server.auth.signing import (
    AUDIENCE,
    ISSUER,
    ec_key,
    jwk,
    part,
    public_pem,
    rsa_key,
    token,
)

OLD, NEW, CURVE = rsa_key("one"), rsa_key("other"), ec_key("p256")


class Endpoint:
    """An identity provider's endpoint; what it answers can be changed at any time."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.headers: dict[str, str] = {}
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.asked += 1
                endpoint.reached.set()
                endpoint.gate.wait(300)
                self.send_response(endpoint.status)
                self.send_header("Content-Length", str(len(endpoint.body)))
                for name, value in endpoint.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(endpoint.body)
                except OSError:
                    # The client hung up on an answer that was too large.
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/jwks.json"

    def publish(self, *keys: dict[str, Any]) -> None:
        self.status, self.body = 200, json.dumps({"keys": keys}).encode()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    made.publish(jwk(OLD, "old"))
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.gate.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Door:
    """An authenticator on the endpoint, and tokens to come in with."""

    def __init__(self, source: str | Path, clock: FakeClock) -> None:
        self.clock = clock
        self.authenticator = JwtAuthenticator(source, issuer=ISSUER, audience=AUDIENCE, clock=clock)

    async def opens(self, text: str) -> bool:
        request = connection([("Authorization", f"Bearer {text}")])
        return await self.authenticator.authenticate(request) is not None

    def token(self, key: Any = OLD, kid: str | None = "old", **more: Any) -> str:
        expires = self.clock.now().timestamp() + 3600
        return token(key, **{"expires": expires, "kid": kid, **more})


@pytest.fixture
def door(endpoint: Endpoint, clock: FakeClock) -> Door:
    return Door(endpoint.url, clock)


async def test_keys_are_fetched_once_and_kept(door: Door, endpoint: Endpoint) -> None:
    assert endpoint.asked == 0
    results = await asyncio.gather(*(door.opens(door.token()) for _ in range(20)))
    assert all(results)
    assert endpoint.asked == 1


async def test_a_rotated_key_is_found_and_the_one_that_was_taken_back_is_refused(
    door: Door, endpoint: Endpoint, clock: FakeClock
) -> None:
    assert await door.opens(door.token())
    endpoint.publish(jwk(OLD, "old"), jwk(NEW, "new"), jwk(CURVE, "curve"))
    clock.advance(31)
    assert await door.opens(door.token(NEW, "new"))
    assert await door.opens(door.token(CURVE, "curve", algorithm="ES256"))
    assert await door.opens(door.token())
    assert endpoint.asked == 2
    endpoint.publish(jwk(NEW, "new"))
    clock.advance(600)
    assert not await door.opens(door.token())
    assert await door.opens(door.token(NEW, "new"))


async def test_made_up_key_ids_do_not_make_it_ask_more_often(
    door: Door, endpoint: Endpoint, clock: FakeClock
) -> None:
    assert await door.opens(door.token())
    for round in range(3):
        for number in range(10):
            assert not await door.opens(door.token(NEW, f"made-up-{number}"))
        assert endpoint.asked == 1 + round
        clock.advance(31)


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (500, b"", {}),
        (404, b'{"keys": []}', {}),
        (302, b"", {"Location": "http://127.0.0.1:9/elsewhere"}),
        (200, b"not json", {}),
        (200, b"[]", {}),
        (200, b'{"keys": 7}', {}),
        (200, b'{"keys": []}', {}),
        (200, b"[" * 100_000, {}),
        (200, b" " * (1024 * 1024 + 1), {}),
        (200, b"\xff\xfe", {}),
        (200, b"x", {"Content-Encoding": "gzip"}),
    ],
)
async def test_an_endpoint_that_fails_leaves_the_old_keys(
    status: int,
    body: bytes,
    headers: dict[str, str],
    door: Door,
    endpoint: Endpoint,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await door.opens(door.token())
    endpoint.status, endpoint.body, endpoint.headers = status, body, headers
    clock.advance(601)
    assert await door.opens(door.token())
    assert not await door.opens(door.token(NEW, "new"))
    assert endpoint.asked == 2
    assert "the old keys stay" in caplog.text
    assert door.token() not in caplog.text
    endpoint.headers = {}
    endpoint.publish(jwk(NEW, "new"))
    clock.advance(31)
    assert await door.opens(door.token(NEW, "new"))


async def test_an_endpoint_that_is_not_there_signs_nobody_in(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door("http://127.0.0.1:9/jwks.json", clock)
    assert not await door.opens(door.token())
    assert "could not refresh the token keys" in caplog.text


async def test_while_the_endpoint_is_slow_known_keys_go_on(
    door: Door, endpoint: Endpoint, clock: FakeClock
) -> None:
    assert await door.opens(door.token())
    endpoint.gate.clear()
    endpoint.reached.clear()
    clock.advance(601)
    first = asyncio.create_task(door.opens(door.token()))
    assert await asyncio.to_thread(endpoint.reached.wait, 90)
    async with asyncio.timeout(90):
        assert await door.opens(door.token())
    assert not first.done()
    endpoint.gate.set()
    assert await first


async def test_attacks_with_what_the_endpoint_publishes_fail(
    door: Door, endpoint: Endpoint, clock: FakeClock
) -> None:
    assert await door.opens(door.token())
    now = clock.now().timestamp()
    evil = rsa_key("evil")
    assert not await door.opens(door.token(evil))
    assert not await door.opens(door.token(evil, headers={"jwk": jwk(evil, "old")}))
    assert not await door.opens(door.token(evil, headers={"jku": endpoint.url}))
    assert not await door.opens(door.token(kid="../../../dev/null"))
    assert not await door.opens(door.token(kid="old' UNION SELECT 1 --"))
    assert not await door.opens(door.token(expires=now - 31))
    assert not await door.opens(door.token(aud="other"))
    assert not await door.opens(door.token(iss="https://evil.example"))
    assert not await door.opens(door.token(padding="x" * 17_000))
    # HS256 signed with the public key; the library itself refuses to sign with it, so by hand.
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "exp": now + 60}
    header = {"alg": "HS256", "typ": "JWT", "kid": "old"}
    signed = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    mac = hmac.digest(public_pem(OLD), signed.encode(), hashlib.sha256)
    assert not await door.opens(f"{signed}.{part(mac)}")


async def test_keys_in_a_file_are_read_and_read_again(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [jwk(OLD, "old")]}))
    door = Door(path, clock)
    assert await door.opens(door.token())
    path.write_text(json.dumps({"keys": [jwk(NEW, "new")]}))
    clock.advance(31)
    assert await door.opens(door.token(NEW, "new"))
    path.unlink()
    clock.advance(601)
    assert await door.opens(door.token(NEW, "new"))


async def test_a_key_that_was_made_with_a_token_is_accepted(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    auth = AuthConfig(mode=AuthMode.JWT, jwks_url=endpoint.url, issuer=ISSUER, audience=AUDIENCE)
    app = AgentApp(Agent(ScriptedModel(["hello"])), db=f"sqlite:///{tmp_path}/a.db", worker=False)
    app.use_config(Config(auth=auth))
    expires = SystemClock().now().timestamp() + 3600
    signed_in = {"Authorization": f"Bearer {token(OLD, expires=expires, kid='old')}"}
    async with (
        app.running(),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://localhost"
        ) as client,
    ):
        made = await client.post("/agent/keys", json={"name": "report"}, headers=signed_in)
        assert made.status_code == 201, made.text
        with_key = {"X-Api-Key": made.json()["secret"]}
        listed = await client.get("/agent/keys", headers=with_key)
        path = f"/agent/keys/{made.json()['id']}"
        assert (await client.delete(path, headers=signed_in)).status_code == 200
        refused = await client.get("/agent/keys", headers=with_key)

    assert [key["name"] for key in listed.json()["items"]] == ["report"]
    assert refused.status_code == 401
