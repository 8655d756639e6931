"""What the door refuses before anything looks at it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.server.limits import BodyLimits, RateLimit, is_utf_8, json_fault
from stepwell.server.metrics import Metrics
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import TooManyError
from stepwell.testing import FakeClock

SETTINGS = ServerSettings(max_body_bytes=100, max_json_depth=3, max_json_items=10)


class Door:
    """Sends one request through the limits and remembers what came of it."""

    def __init__(self, settings: ServerSettings = SETTINGS) -> None:
        self.metrics = Metrics()
        self.limits = BodyLimits(self._app, settings, self.metrics)
        self.passed: bytes | None = None
        self.sent: list[MutableMapping[str, Any]] = []

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert message["more_body"] is False
        self.passed = message["body"]

    async def post(
        self,
        chunks: Iterable[bytes],
        *,
        leaves: bool = False,
        path: str = "/x",
        query: str = "",
        **headers: str,
    ) -> int | None:
        """The status of the refusal; None if the request was passed on or dropped."""
        messages = self._messages(list(chunks), leaves)

        async def receive() -> Any:
            return await anext(messages)

        async def send(message: MutableMapping[str, Any]) -> None:
            self.sent.append(message)

        head = {"content-type": "application/json", **headers}
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": query.encode(),
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in head.items()
            ],
        }
        await self.limits(scope, receive, send)
        return self.sent[0]["status"] if self.sent else None

    @staticmethod
    async def _messages(chunks: list[bytes], leaves: bool) -> AsyncIterator[dict[str, Any]]:
        for number, chunk in enumerate(chunks, 1):
            more = leaves or number < len(chunks)
            yield {"type": "http.request", "body": chunk, "more_body": more}
        yield {"type": "http.disconnect"}

    def problem(self) -> dict[str, Any]:
        return json.loads(self.sent[1]["body"])


async def test_a_body_of_the_allowed_size_arrives_whole() -> None:
    door = Door()
    body = b'"' + b"a" * 98 + b'"'

    assert await door.post([body[:50], body[50:]]) is None
    assert door.passed == body


async def test_one_byte_more_is_refused_although_it_comes_in_chunks() -> None:
    door = Door()

    assert await door.post([b'"' + b"a" * 50, b"a" * 49 + b'"']) == 413
    assert door.passed is None
    assert door.problem()["code"] == "body_too_large"
    assert door.metrics.refused.value(limit="body") == 1


async def test_a_declared_length_is_refused_whatever_comes() -> None:
    door = Door()

    assert await door.post([b"{}"], content_length="101") == 413
    assert await Door().post([], content_length="101") == 413
    assert door.passed is None


@pytest.mark.parametrize("declared", ["-1", "abc", "", "²"])
async def test_a_length_that_is_none_does_not_count(declared: str) -> None:
    assert await Door().post([b"{}"], content_length=declared) is None


async def test_a_client_that_leaves_in_the_middle_asked_for_nothing() -> None:
    door = Door()

    assert await door.post([b"{}"], leaves=True) is None
    assert door.passed is None


@pytest.mark.parametrize("media_type", ["text/plain", "", "application/x-www-form-urlencoded"])
async def test_what_is_not_sent_as_json_is_refused(media_type: str) -> None:
    headers = {"content-type": media_type}

    assert await Door().post([b"a=1"], **headers) == 415


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "application/a+json"])
async def test_json_may_be_called_by_its_other_names(media_type: str) -> None:
    assert await Door().post([b"{}"], **{"content-type": media_type}) is None


async def test_channels_are_joined_by_a_form_as_well() -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}

    assert await Door().post([b"a=1"], path="/mounted/broadcasting/auth", **form) is None


async def test_no_body_needs_no_type() -> None:
    door = Door()

    assert await door.post([b""], **{"content-type": "text/plain"}) is None
    assert door.passed == b""


async def test_a_deep_body_is_refused() -> None:
    door = Door()

    assert await door.post([b"[[[[1]]]]"]) == 422
    assert door.problem()["code"] == "json_too_complex"


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    door = Door(ServerSettings(body_seconds=0.01))
    statuses: list[int] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    await door.limits({"type": "http", "path": "/", "headers": []}, receive, send)

    assert statuses[0] == 408


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"[[[]]]", None),
        (b'{"a": {"b": []}}', None),
        (b'["[[[[[[", "]", "\\"[[[[", "{,,,,,,,,,,,,,,"]', None),
        (b'"\\\\"', None),
        (b"[[[[", "The body is nested more than 3 levels deep."),
        (b'{"a":{"b":{"c":{}}}}', "The body is nested more than 3 levels deep."),
        (b'"\\\\" [[[[', "The body is nested more than 3 levels deep."),
        (b"[" + b"1," * 10 + b"1]", "The body has more than 10 items."),
        (b"[" + b"[]," * 6 + b"[]]", "The body has more than 10 items."),
    ],
)
def test_depth_and_items_are_counted_outside_of_texts(body: bytes, fault: str | None) -> None:
    assert json_fault(body, 3, 10) == fault


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"]", "The body closes a list or an object that it did not open."),
        (b"[1]}", "The body closes a list or an object that it did not open."),
        (b'""' * 100, "The body has more than 10 items."),
        (b'[{"a": "b"' + b"}" * 50, "The body closes a list or an object that it did not open."),
        (b"{" + b",".join(b'"k%d": "v"' % n for n in range(10)) + b"}", None),
        (b"[" + b",".join(b'{"a":"b"}' for _ in range(5)) + b"]", None),
    ],
)
def test_every_token_is_counted(body: bytes, fault: str | None) -> None:
    assert json_fault(body, 3, 10) == fault


@pytest.mark.parametrize("token", [b"]", b'""', b"[]", b",", b'{"":""}', b'"a" '])
def test_a_body_of_tokens_without_sense_is_refused(token: bytes) -> None:
    assert json_fault(token * (2**20 // len(token)), 32, 10_000) is not None


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"[" + b"9" * 400 + b"]", None),
        (b"[" + b"9" * 401 + b"]", "The body has a number of more than 400 digits."),
        (b"[0." + b"0" * 401 + b"1]", "The body has a number of more than 400 digits."),
        (b'["' + b"9" * 401 + b'"]', None),
    ],
)
def test_a_number_is_not_read_if_it_is_long(body: bytes, fault: str | None) -> None:
    assert json_fault(body, 3, 10) == fault


_OTHER_ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


@pytest.mark.parametrize("encoding", [*_OTHER_ENCODINGS, "utf-8-sig", "latin-1", "utf-7"])
async def test_a_body_that_is_not_utf_8_is_refused(encoding: str) -> None:
    door = Door()

    assert await door.post(['{"a": "é"}'.encode(encoding)]) in (400, None)
    # UTF-7 of this text is plain ASCII, and so it is UTF-8 as well.
    assert (door.passed is None) == (encoding != "utf-7")


@pytest.mark.parametrize("encoding", _OTHER_ENCODINGS)
async def test_another_encoding_does_not_hide_items_from_the_count(encoding: str) -> None:
    door = Door(ServerSettings(max_json_items=10))

    assert await door.post([("[" + "1," * 20 + "1]").encode(encoding)]) == 400
    assert door.problem()["code"] == "bad_encoding"


@pytest.mark.parametrize(
    ("charset", "status"),
    [("utf-8", None), ("UTF-8", None), ('"utf8"', None), ("utf-16", 415), ("latin-1", 415)],
)
async def test_a_charset_other_than_utf_8_is_refused(charset: str, status: int | None) -> None:
    door = Door()
    headers = {"content-type": f"application/json; a=b; Charset={charset}"}

    assert await door.post([b"{}"], **headers) == status
    assert status is None or door.problem()["code"] == "unsupported_charset"


@given(st.binary() | st.text().map(str.encode))
def test_python_reads_what_is_accepted_as_utf_8(body: bytes) -> None:
    if body and is_utf_8(body):
        assert json.detect_encoding(body) == "utf-8"


async def test_a_long_form_is_refused() -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    door = Door(ServerSettings())

    assert await door.post([b"a" * 9000], path="/broadcasting/auth", **form) == 413


async def test_many_query_parameters_are_refused() -> None:
    assert await Door().post([b"{}"], query="a&" * 99) is None
    door = Door()
    assert await door.post([b"{}"], query="a&" * 100) == 400
    assert door.problem()["code"] == "too_many_parameters"


def test_a_text_without_an_end_is_looked_at_once() -> None:
    # Quadratic work on a body of the allowed size would take minutes.
    assert json_fault(b'"' + b'\\"' * 500_000, 3, 10) is None


def test_a_user_may_send_a_burst_and_then_at_the_rate() -> None:
    clock = FakeClock()
    limit = RateLimit(per_second=2, burst=3, clock=clock)
    for _ in range(3):
        limit.take("t", "ada")

    with pytest.raises(TooManyError) as refused:
        limit.take("t", "ada")
    assert refused.value.code == "rate_limited"
    assert refused.value.retry_after == pytest.approx(0.5)

    clock.advance(0.5)
    limit.take("t", "ada")
    with pytest.raises(TooManyError):
        limit.take("t", "ada")


def test_users_and_tenants_have_buckets_of_their_own() -> None:
    limit = RateLimit(per_second=1, burst=1, clock=FakeClock())
    limit.take("t", "ada")

    limit.take("t", "bob")
    limit.take("u", "ada")
    with pytest.raises(TooManyError):
        limit.take("t", "ada")


def test_a_long_rest_gives_no_more_than_the_burst() -> None:
    clock = FakeClock()
    limit = RateLimit(per_second=1, burst=2, clock=clock)
    limit.take("t", "ada")
    clock.advance(1000)
    limit.take("t", "ada")
    limit.take("t", "ada")

    with pytest.raises(TooManyError):
        limit.take("t", "ada")


def test_full_buckets_are_forgotten() -> None:
    clock = FakeClock()
    limit = RateLimit(per_second=1, burst=2, clock=clock)
    for number in range(100):
        limit.take("t", f"user-{number}")
    assert len(limit) == 100

    clock.advance(3)
    limit.take("t", "ada")

    assert len(limit) == 1
