"""Everything that can go wrong between us and a provider, over real sockets: each is a ModelError
that says what, where and what to do; one turn is one request; a run ends or survives as its policy
says.
"""

import asyncio
import gzip
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec import Struct, json
from msgspec.structs import replace

from stepwell import Agent, AgentStatus, ErrorPolicy, StopReason
from stepwell.backoff import Backoff
from stepwell.errors import ErrorType, ModelError, ModelErrorKind
from stepwell.messages import Message, Usage
from stepwell.models import (
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ResponseEnd,
    TextDelta,
    http,
    provider,
)
from stepwell.models.provider import ProviderModel
from stepwell.models.providers import KNOWN_PROVIDERS
from stepwell.models.response import StreamPart as Part
from stepwell.testing import FakeClock
from tests.examples import every
from tests.integration.models.test_cuts import RICH, GivenClient, told
from tests.servers.byte_server import FOREVER, Answer, ByteServer, Ending
from tests.servers.record import MODELS, RECORDINGS, WIRES
from tests.servers.weather_agent import PROVIDERS, both_ways, collected

K = ModelErrorKind
SECONDS = 60
"""Only what hangs takes as long."""
KEY = "sk-very-secret-key"
REQUEST = ModelRequest(messages=(Message.user("hi"),))
TEXT = "Hello! Grüße, こんにちは 👋"
EVERY_WIRE = pytest.mark.parametrize("wire", WIRES)
BOTH_WAYS = pytest.mark.parametrize(("wire", "streamed"), both_ways(WIRES))
PLAIN_AND_STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
TRIES_AGAIN = ErrorPolicy.retry_all(3).with_backoff(Backoff(initial=0.01))


@pytest.fixture(autouse=True)
async def in_time() -> AsyncIterator[None]:
    """A test that hangs fails: whatever runs in its event loop is cancelled."""

    def cancel_all() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    loop = asyncio.get_running_loop()
    handle = loop.call_later(SECONDS, cancel_all)
    yield
    handle.cancel()


def model_of(url: str, wire: str = "chat", *, client: Any = None, **options: Any) -> ProviderModel:
    """A known provider's model at this address, as patient as the test says."""
    clock = options.pop("clock", None)
    provider = replace(KNOWN_PROVIDERS[PROVIDERS[wire]], **{"read_timeout": 5.0, **options})
    base_url = f"{url}/v1" if wire in ("chat", "responses") else url
    return provider.model(MODELS[wire], api_key=KEY, base_url=base_url, clock=clock, client=client)


def body(wire: str, *, streamed: bool, name: str = "llmock_text") -> bytes:
    """A recorded answer that says TEXT."""
    return (RECORDINGS / wire / f"{name}.{'sse' if streamed else 'json'}").read_bytes()


def good(wire: str, *, streamed: bool) -> Answer:
    """An answer with which nothing is wrong."""
    said = body(wire, streamed=streamed)
    return Answer.sse(said) if streamed else Answer.json(said)


def error_body(wire: str, status: int, text: str, word: str = "") -> dict[str, Any]:
    """An error as this format's providers tell it."""
    if wire == "anthropic":
        return {"type": "error", "error": {"type": word or "api_error", "message": text}}
    if wire == "gemini":
        return {"error": {"code": status, "message": text, "status": word.upper()}}
    return {"error": {"message": text, "type": word or None, "param": None, "code": None}}


async def ask(
    model: ProviderModel, *, streamed: bool, request: ModelRequest = REQUEST
) -> ModelResponse:
    """The answer, either way."""
    async with asyncio.timeout(SECONDS):
        if not streamed:
            return await model.respond(request)
        last: Part | None = None
        async for part in model.stream(request):
            last = part
        assert isinstance(last, ResponseEnd)
        return last.response


async def failed(
    model: ProviderModel, *, streamed: bool, request: ModelRequest = REQUEST
) -> ModelError:
    """The error of a turn that must fail. Its text names the model and never the key."""
    with pytest.raises(ModelError) as caught:
        await ask(model, streamed=streamed, request=request)
    error = caught.value
    assert model.name in str(error)
    assert KEY not in f"{error!r} {error.provider_text} {error.__dict__}"
    return error


# Faults that every format has, each looked at as a turn, as a run, and as a run that tries again


class Fault(Struct, frozen=True):
    """What a server does, and what must come of it."""

    name: str
    answer: Callable[[str, bool], Answer]
    kind: ModelErrorKind
    words: tuple[str, ...] = ()
    status: int | None = None
    only_streamed: bool = False


def answering(status: int, text: str, word: str = "", **headers: str) -> Callable[..., Answer]:
    """An error answer in the provider's own shape."""
    return lambda wire, _: Answer.json(
        error_body(wire, status, text, word), status=status, x_request_id="req_7", **headers
    )


def page(status: int, text: str) -> Callable[..., Answer]:
    """What a proxy in between says."""
    html = f"<html>\n<head><title>{text}</title></head>\n<body>nginx</body></html>".encode()
    headers = {"content-type": "text/html", "x-request-id": "req_7"}
    return lambda *_: Answer(status=status, headers=headers, pieces=(html,))


def cut(share: float, ending: Ending) -> Callable[..., Answer]:
    """A good answer that breaks off."""

    def answer(wire: str, streamed: bool) -> Answer:
        whole = good(wire, streamed=streamed)
        return whole.cut_at(int(len(whole.body) * share), ending)

    return answer


def said(text: bytes, media_type: str = "text/event-stream") -> Callable[..., Answer]:
    """Status 200 and a body that is none."""
    return lambda *_: Answer(headers={"content-type": media_type}, pieces=(text,))


def without_an_end(wire: str, _: bool) -> Answer:
    """All text, and then a clean end without the event that says so."""
    events = body(wire, streamed=True).split(b"\n\n")
    ends = (b'finish_reason":"', b"finishReason", b"message_stop", b'completed"', b"[DONE]")
    kept = [event for event in events if not any(end in event for end in ends)]
    assert len(kept) < len(events)
    return Answer.sse(b"\n\n".join([*kept, b""]))


FAULTS = [
    Fault("429", answering(429, "Slow down.", retry_after="0.02"), K.RATE_LIMIT,
          ("answered 429", "Slow down.", "wait 0.02 seconds", "req_7"), 429),
    Fault("429 page", page(429, "Too many"), K.RATE_LIMIT, ("answered 429", "Too many"), 429),
    Fault("429 cut off", lambda w, s: answering(429, "Slow down.", retry_after="0.02")(w, s)
          .cut_at(9), K.RATE_LIMIT, ("answered 429", "wait 0.02 seconds"), 429),
    Fault("500", answering(500, "Oops."), K.SERVER, ("answered 500", "Oops."), 500),
    Fault("500 page", page(500, "Sorry"), K.SERVER, ("answered 500", "Sorry"), 500),
    Fault("500 reset", lambda w, s: answering(500, "Oops.")(w, s).cut_at(9, Ending.RESET),
          K.SERVER, ("answered 500",), 500),
    Fault("502 page", page(502, "Bad Gateway"), K.SERVER, ("502", "Bad Gateway"), 502),
    Fault("503", answering(503, "Busy.", "unavailable"), K.OVERLOADED, ("503", "Busy."), 503),
    Fault("503 page", page(503, "Busy"), K.OVERLOADED, ("503", "Busy"), 503),
    Fault("529", answering(529, "Overloaded", "overloaded_error"), K.OVERLOADED, ("529",), 529),
    Fault("401", answering(401, f"Wrong key {KEY}.", "authentication_error"), K.AUTHENTICATION,
          ("answered 401", "Wrong key [secret]."), 401),
    Fault("403", answering(403, "Not you.", "permission_denied"), K.AUTHENTICATION,
          ("answered 403", "Not you."), 403),
    Fault("404", answering(404, "No such model: x", "not_found"), K.NOT_FOUND,
          ("answered 404", "No such model: x"), 404),
    Fault("404 page", page(404, "Not Found"), K.NOT_FOUND, ("answered 404", "Not Found"), 404),
    Fault("context", answering(400, "prompt is too long: 9 > 8 tokens", "invalid_argument"),
          K.CONTEXT_TOO_LONG, ("prompt is too long: 9 > 8 tokens",), 400),
    Fault("400", answering(400, "messages: wrong", "invalid_request_error"), K.INVALID_REQUEST,
          ("messages: wrong",), 400),
    Fault("hung up", lambda *_: Answer(silent=True, ending=Ending.EOF), K.DISCONNECTED,
          ("closed the connection before it answered",)),
    Fault("reset", lambda *_: Answer(silent=True, ending=Ending.RESET), K.DISCONNECTED,
          ("closed the connection before it answered",)),
    Fault("closed early", cut(0.05, Ending.EOF), K.DISCONNECTED, ("closed the connection while",)),
    Fault("closed late", cut(0.6, Ending.EOF), K.DISCONNECTED, ("closed the connection while",)),
    Fault("reset late", cut(0.6, Ending.RESET), K.DISCONNECTED, ("closed the connection while",)),
    Fault("no end", without_an_end, K.INCOMPLETE_STREAM, ("ended without",), only_streamed=True),
    Fault("page", said(b"<html><body>Log in</body></html>", "text/html"), K.MALFORMED_RESPONSE,
          ("<html><body>Log in", "base_url")),
    Fault("nothing", said(b""), K.EMPTY_RESPONSE, ("empty",)),
    Fault("nothing of JSON", said(b"", "application/json"), K.EMPTY_RESPONSE, ("empty",)),
    Fault("no JSON", said(b"data: {nope}\n\n"), K.MALFORMED_RESPONSE, ("{nope}",)),
    Fault("no text", said(b'data: {"x": "\xff\xfe"}\n\n'), K.MALFORMED_RESPONSE),
    Fault("error in 200", lambda w, _: Answer.json(error_body(w, 503, "Busy.", "unavailable")),
          K.OVERLOADED, ("Busy.",)),
]  # fmt: skip
EVERY_FAULT = pytest.mark.parametrize(
    ("fault", "wire", "streamed"),
    [
        pytest.param(fault, wire, streamed, id=f"{fault.name}-{wire}-{streamed=}")
        for fault in FAULTS
        for wire, streamed in both_ways(WIRES)
        if streamed or not fault.only_streamed
    ],
)


@EVERY_FAULT
async def test_a_fault_becomes_an_error_that_says_what_and_is_not_tried_again(
    fault: Fault, wire: str, streamed: bool
):
    async with ByteServer(fault.answer(wire, streamed)) as server:
        error = await failed(model_of(server.url, wire), streamed=streamed)

    assert error.kind is fault.kind
    assert error.retryable is fault.kind.is_retryable
    assert error.error_type is fault.kind.error_type
    if fault.status is not None:
        assert error.status == fault.status
        assert error.request_id == "req_7"
        assert error.provider_text
    for word in fault.words:
        assert word in str(error)
    assert len(server.requests) == 1


@EVERY_FAULT
async def test_a_run_stops_explained_or_survives_as_its_policy_says(
    fault: Fault, wire: str, streamed: bool
):
    answers = [fault.answer(wire, streamed), good(wire, streamed=streamed)]
    async with ByteServer(*answers) as server:
        model = model_of(server.url, wire)
        stopped = await run(Agent(model, model_retries=0), streamed=streamed)
        assert len(server.requests) == 1
        server.script(*answers)
        agent = Agent(model, error_policy=TRIES_AGAIN, model_retries=0)
        tried = await run(agent, streamed=streamed)

    assert stopped.status is AgentStatus.FAILED
    explained = stopped.explain()
    for word in (model.name, *fault.words):
        assert word in explained
    assert [error.kind for error in stopped.steps[-1].step.errors] == [fault.kind]
    if fault.kind.is_retryable:
        assert tried.status is AgentStatus.COMPLETED
        assert tried.final_response == TEXT
        assert len(server.requests) == 2
    else:
        assert tried.status is AgentStatus.FAILED
        assert tried.stop.stop_reason is StopReason.ERROR
        assert "What to change:" in tried.explain()
        assert len(server.requests) == 1


RETRIED = {
    *(K.CONNECT, K.DISCONNECTED, K.INCOMPLETE_STREAM, K.OVERLOADED, K.RATE_LIMIT, K.TIMEOUT),
}


@EVERY_FAULT
async def test_a_run_retries_what_passes_before_any_output(fault: Fault, wire: str, streamed: bool):
    clock = FakeClock()
    async with ByteServer(fault.answer(wire, streamed), good(wire, streamed=streamed)) as server:
        state = await run(Agent(model_of(server.url, wire), clock=clock), streamed=streamed)

    is_retried = len(server.requests) == 2
    assert len(clock.slept) == (1 if is_retried else 0)
    assert (state.status is AgentStatus.COMPLETED) is is_retried
    if fault.kind not in RETRIED:
        assert not is_retried
    elif not streamed:  # where it is streamed, some of these break behind the first words
        assert is_retried


@EVERY_WIRE
async def test_a_run_waits_as_long_as_retry_after_says(wire: str):
    clock = FakeClock()
    busy = Answer.json(b'{"error": {"message": "slow down"}}', status=429)
    waits = [
        replace(busy, headers={**busy.headers, "retry-after-ms": "1500"}),
        replace(busy, headers={**busy.headers, "retry-after": "7"}),
    ]
    async with ByteServer(*waits, good(wire, streamed=False)) as server:
        state = await run(Agent(model_of(server.url, wire), clock=clock), streamed=False)

    assert state.final_response == TEXT
    assert clock.slept == [1.5, 7.0]


async def run(agent: Agent, *, streamed: bool) -> Any:
    """The end of a run."""
    if streamed:
        return (await collected(agent, "hi")).state
    return await agent.run("hi")


# Waiting


@BOTH_WAYS
async def test_a_provider_that_says_nothing_is_waited_for_so_long(wire: str, streamed: bool):
    async with ByteServer(Answer.never()) as server:
        error = await failed(model_of(server.url, wire, read_timeout=0.1), streamed=streamed)
        await server.until(lambda: server.disconnects)

    assert (error.kind, error.retryable, error.error_type) == (K.TIMEOUT, True, ErrorType.TIMEOUT)
    assert "sent nothing" in str(error)
    assert "0.1 seconds" in str(error)
    assert server.url in str(error)
    assert len(server.requests) == 1


@EVERY_WIRE
async def test_silence_in_the_middle_of_a_stream_is_waited_for_so_long(wire: str):
    said = body(wire, streamed=True)
    middle = said.index(b"Hello") + 50
    async with ByteServer(Answer.sse(said[:middle], FOREVER, said[middle:])) as server:
        model = model_of(server.url, wire, read_timeout=3.0)
        error = await failed(model, streamed=True)
        await server.until(lambda: server.disconnects)

    assert error.kind is K.TIMEOUT
    assert "while the answer was read" in str(error)


@EVERY_WIRE
async def test_a_slow_stream_is_not_too_slow_as_long_as_something_comes(wire: str):
    said = body(wire, streamed=True)
    # Each pause is far below the timeout, and ten of them are longer.
    slow = Answer.sse(said).trickled(len(said) // 10, 0.35)
    async with ByteServer(slow) as server:
        response = await ask(model_of(server.url, wire, read_timeout=3.0), streamed=True)

    assert response.text == TEXT


@PLAIN_AND_STREAMED
async def test_an_address_where_nobody_listens_is_named(streamed: bool):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening, so that nobody else can
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        error = await failed(model_of(url), streamed=streamed)

    assert (error.kind, error.retryable) == (K.CONNECT, True)
    assert f"could not be reached ({url}/v1/chat/completions)" in str(error)


@PLAIN_AND_STREAMED
async def test_a_host_that_takes_no_connection_is_waited_for_so_long(streamed: bool):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for taker in waiting:  # more than the queue holds, so that the next one is left standing
            taker.setblocking(False)
            taker.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        error = await failed(model_of(url, connect_timeout=0.2), streamed=streamed)
        for taker in waiting:
            taker.close()

    assert (error.kind, error.retryable) == (K.TIMEOUT, True)
    assert "could not be reached for 0.2 seconds" in str(error)
    assert url in str(error)


async def test_a_host_that_does_not_exist_is_named():
    error = await failed(model_of("http://no-such-host.invalid"), streamed=False)

    assert (error.kind, error.retryable) == (K.CONNECT, True)
    assert "no-such-host.invalid" in str(error)


@PLAIN_AND_STREAMED
async def test_an_error_is_told_although_its_text_does_not_come(monkeypatch, streamed: bool):
    monkeypatch.setattr(http, "ERROR_BODY_SECONDS", 0.1)
    slow = Answer.json({"error": {"message": "Slow down."}}, status=429, retry_after="7")
    async with ByteServer(slow.cut_at(12, Ending.HANG)) as server:
        error = await failed(model_of(server.url), streamed=streamed)
        await server.until(lambda: server.disconnects)

    assert (error.kind, error.status, error.retry_after) == (K.RATE_LIMIT, 429, 7.0)


@PLAIN_AND_STREAMED
async def test_the_deadline_of_a_run_ends_a_turn_and_its_connection(streamed: bool):
    async with ByteServer(halting("chat")) as server:
        state = await run(Agent(model_of(server.url), timeout=1.0), streamed=streamed)
        await server.until(lambda: server.disconnects)

    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("header", "value", "seconds"),
    [
        ("retry-after", "7", 7.0),
        ("retry-after", "0.25", 0.25),
        ("retry-after", "Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("retry-after", "Wed, 31 Dec 2025 12:00:30 GMT", 0.0),
        ("retry-after", "soon", None),
        ("retry-after", "-3", None),
        ("retry-after-ms", "250", 0.25),
    ],
)
@PLAIN_AND_STREAMED
async def test_how_long_a_provider_asks_to_wait(header, value, seconds, streamed: bool):
    answer = Answer(status=429, headers={header: value}, pieces=(b"{}",))
    clock = FakeClock(datetime(2026, 1, 1, 12, 0, tzinfo=UTC))
    async with ByteServer(answer) as server:
        error = await failed(model_of(server.url, clock=clock), streamed=streamed)

    assert error.retry_after == seconds
    if seconds is not None:
        assert f"it asks to wait {seconds:g} seconds" in str(error)


# Shapes


@EVERY_WIRE
@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"nope",
        b"5",
        b'"x"',
        b"[1, 2]",
        b"{}",
        b'{"choices": "x", "type": 5, "candidates": "x"}',
        b'{"choices": 5, "type": [], "candidates": 5}',
        b'{"choices": [5], "type": {}, "candidates": [5]}',
        b'{"choices": [null], "candidates": [null], "type": "content_block_start"}',
        b'{"choices": [{"delta": 5}], "candidates": [{"content": 5}], "type": "message_start"}',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"\xff\xfe\x00",
        b'{"x": "\xc3"}',
        b'{"choices": [], "x": 1e999}',
        b'{"error": {"message": 5, "code": [], "type": {}, "details": 5}}',
        b'{"error": [[]]}',
        b'{"error": true}',
    ],
    ids=lambda event: event[:20],
)
async def test_an_event_of_any_shape_is_an_error_or_passed_over(wire: str, event: bytes):
    answer = Answer.sse(b"data: " + event + b"\n\n", body(wire, streamed=True))
    async with ByteServer(answer) as server:
        parts, error = await told(model_of(server.url, wire))

    if error is None:
        last = parts[-1]
        assert isinstance(last, ResponseEnd)
        assert last.response.text == TEXT
    else:
        assert parts == []
        assert error.kind in (K.MALFORMED_RESPONSE, K.SERVER)
        assert len(str(error)) < 2000


@EVERY_WIRE
@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize(
    "answer",
    [
        b"null",
        b"5",
        b'"x"',
        b"[]",
        b"[[1]]",
        b"{",
        b'{"error": 5}',
        b'{"error": [1]}',
        b'{"error": {"message": {"a": 1}, "code": true, "details": [5, null, {"reason": 5}]}}',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"error": {"message": "\xff\xfe"}}',
        b"\xff\xfe\x00\x01",
    ],
    ids=lambda answer: answer[:20],
)
async def test_a_body_of_any_shape_is_an_error(wire: str, status: int, answer: bytes):
    async with ByteServer(Answer.json(answer, status=status)) as server:
        error = await failed(model_of(server.url, wire), streamed=False)

    if status == 200:
        assert error.kind in (K.MALFORMED_RESPONSE, K.EMPTY_RESPONSE, K.SERVER)
    else:
        assert error.status == status
        assert error.kind is (K.INVALID_REQUEST if status == 400 else K.SERVER)
    assert len(str(error)) < 2000


ODD: list[Any] = [None, 5, -1, True, "x", "", [], {}, [5], [None], [[]], [{}], {"a": 1}]


def places(value: Any, *path: str | int) -> Any:
    """Where in a JSON value something can be replaced."""
    yield path
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, item in inner:
        yield from places(item, *path, key)


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """The value with something else at that place."""
    if not path:
        return by
    copied = value.copy()
    copied[path[0]] = replaced(value[path[0]], path[1:], by)
    return copied


def is_sound(part: Part) -> bool:
    """Whether all that is in a part is of the type that it declares."""
    return msgspec.convert(msgspec.to_builtins(part), Part) == part


@pytest.mark.parametrize("file", RICH, ids=lambda file: f"{file.parent.name}-{file.stem}")
async def test_a_wrong_type_anywhere_in_a_stream_is_an_error_or_passed_over(file):
    events = file.read_bytes().replace(b"\r\n", b"\n").split(b"\n\n")
    client = GivenClient()
    model = client.model(file.parent.name)
    for index, event in enumerate(events):
        before, _, data = event.rpartition(b"data:")
        if not data.strip().startswith(b"{"):
            continue
        value = json.decode(data)
        for path in places(value):
            for odd in ODD[:: every(2)]:
                changed = before + b"data:" + json.encode(replaced(value, path, odd))
                client.pieces = (b"\n\n".join([*events[:index], changed, *events[index + 1 :]]),)
                parts, error = await told(model)
                assert all(is_sound(part) for part in parts), (index, path, odd)
                assert error is None or isinstance(error.usage, Usage | None), (index, path, odd)


@EVERY_WIRE
async def test_a_wrong_type_anywhere_in_an_answer_is_an_error_or_passed_over(wire: str):
    file = next(file for file in RICH if file.parent.name == wire).with_suffix(".json")
    value = json.decode(file.read_bytes())
    client = GivenClient()
    client.media_type = "application/json"
    model = client.model(wire)
    for path in places(value):
        for odd in ODD:
            client.pieces = (json.encode(replaced(value, path, odd)),)
            parts, error = await told(model)
            assert all(is_sound(part) for part in parts), (path, odd)
            assert error is None or isinstance(error.usage, Usage | None), (path, odd)


# Encodings


@EVERY_WIRE
async def test_characters_may_be_split_over_chunks(wire: str):
    answer = Answer.sse(body(wire, streamed=True)).trickled(1)
    async with ByteServer(answer) as server:
        parts, error = await told(model_of(server.url, wire))

    assert error is None
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == TEXT


def packed(wire: str, *, streamed: bool, data: bytes) -> Answer:
    """A compressed answer."""
    media_type = "text/event-stream" if streamed else "application/json"
    headers = {"content-type": media_type, "content-encoding": "gzip"}
    return Answer(headers=headers, pieces=(data[:10], data[10:]))


@BOTH_WAYS
async def test_a_compressed_answer_is_read(wire: str, streamed: bool):
    data = gzip.compress(body(wire, streamed=streamed))
    async with ByteServer(packed(wire, streamed=streamed, data=data)) as server:
        response = await ask(model_of(server.url, wire), streamed=streamed)

    assert response.text == TEXT


@BOTH_WAYS
async def test_a_wrongly_compressed_answer_is_malformed(wire: str, streamed: bool):
    data = body(wire, streamed=streamed)
    async with ByteServer(packed(wire, streamed=streamed, data=data)) as server:
        error = await failed(model_of(server.url, wire), streamed=streamed)

    assert (error.kind, error.retryable) == (K.MALFORMED_RESPONSE, True)
    assert "can't be decoded" in str(error)


@BOTH_WAYS
async def test_a_compressed_answer_that_is_cut_is_never_whole(wire: str, streamed: bool):
    data = gzip.compress(body(wire, streamed=streamed))
    model_at: Any = None
    async with ByteServer() as server:
        model_at = model_of(server.url, wire)
        for size in range(0, len(data) - 30, 13):
            server.script(packed(wire, streamed=streamed, data=data[:size]))
            error = await failed(model_at, streamed=streamed)
            assert error.retryable


@EVERY_WIRE
async def test_a_server_may_answer_a_streamed_request_at_once(wire: str):
    async with ByteServer(good(wire, streamed=False)) as server:
        parts, error = await told(model_of(server.url, wire))

    assert error is None
    assert [part.text for part in parts if isinstance(part, TextDelta)] == [TEXT]
    assert isinstance(parts[-1], ResponseEnd)


# Sizes


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[str]:
    """A server that does what the handler does with each connection; gives its address."""
    tasks: list[asyncio.Task[None] | None] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with suppress(ConnectionError, asyncio.CancelledError):
            await handle(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("head", "streamed", "kind"),
    [
        (b"200 OK\r\ncontent-type: text/event-stream\r\n", True, K.TOO_LARGE),
        (b"200 OK\r\ncontent-type: application/json\r\n", True, K.TOO_LARGE),
        (b"200 OK\r\ncontent-type: application/json\r\n", False, K.TOO_LARGE),
        (b"500 Oops\r\ncontent-type: text/html\r\n", False, K.SERVER),
    ],
    ids=["line", "body of a stream", "body", "error"],
)
async def test_fifty_megabytes_are_not_taken_in(head: bytes, streamed: bool, kind: K):
    sent, piece = 0, b"x" * 65_536

    async def send_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + head + b"connection: close\r\n\r\n")
        while sent < 50_000_000:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)

    async with serving(send_on) as url:
        tracemalloc.start()
        try:
            error = await failed(model_of(url), streamed=streamed)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert error.kind is kind
    assert error.retryable is kind.is_retryable
    assert len(str(error)) < 2000
    assert most < 80_000_000
    assert sent < 50_000_000


async def test_fifty_megabytes_in_a_small_packet_are_not_taken_in():
    data = gzip.compress(b"data: " + b"x" * 50_000_000)
    tracemalloc.start()
    try:
        async with ByteServer(packed("chat", streamed=True, data=data)) as server:
            error = await failed(model_of(server.url), streamed=True)
            _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert error.kind is K.TOO_LARGE
    assert most < 170_000_000


@EVERY_WIRE
async def test_a_long_answer_in_one_line_takes_no_longer_than_its_length(wire: str):
    line = b": " + b"x" * 7_000_000 + b"\n\n"
    answer = Answer.sse(line, body(wire, streamed=True))
    async with ByteServer(answer) as server:
        async with asyncio.timeout(60):
            response = await ask(model_of(server.url, wire), streamed=True)

    assert response.text == TEXT


# The connection


@BOTH_WAYS
async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else(wire: str, streamed: bool):
    async with ByteServer(good(wire, streamed=streamed)) as other:
        moved = Answer(status=307, headers={"location": f"{other.url}/v1/x"})
        async with ByteServer(moved) as server:
            error = await failed(model_of(server.url, wire), streamed=streamed)

    assert other.requests == []
    assert (error.kind, error.retryable, error.status) == (K.INVALID_REQUEST, False, 307)
    assert f"{other.url}/v1/x" in str(error)
    assert "set base_url" in str(error)


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "gemini"])
async def test_a_stream_whose_connection_stays_open_ends_with_its_last_event(
    wire: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(provider, "SILENCE_SECONDS", 600.0)
    answer = replace(good(wire, streamed=True), ending=Ending.HANG)
    async with ByteServer(answer) as server:
        async with asyncio.timeout(90):
            response = await ask(model_of(server.url, wire, read_timeout=600.0), streamed=True)
        await server.until(lambda: server.disconnects)

    assert response.text == TEXT


async def test_a_whole_stream_without_a_last_event_ends_when_nothing_more_comes(monkeypatch):
    monkeypatch.setattr(provider, "SILENCE_SECONDS", 0.1)
    no_done = (RECORDINGS / "chat" / "extra_no_done.sse").read_bytes()
    of_gemini = good("gemini", streamed=True)  # its streams never have one
    async with (
        asyncio.timeout(90),  # less than the read timeout
        ByteServer(replace(Answer.sse(no_done), ending=Ending.HANG)) as chat,
        ByteServer(replace(of_gemini, ending=Ending.HANG)) as gemini,
    ):
        models = (
            model_of(chat.url, read_timeout=600.0),
            model_of(gemini.url, "gemini", read_timeout=600.0),
        )
        responses = await asyncio.gather(*(ask(model, streamed=True) for model in models))
        await chat.until(lambda: chat.disconnects)
        await gemini.until(lambda: gemini.disconnects)

    assert [response.text for response in responses] == ["Eins, zwei.", TEXT]


async def test_what_comes_behind_the_reason_to_finish_is_still_read():
    said = (RECORDINGS / "gemini" / "extra_usage_after_the_end.sse").read_bytes()
    middle = said.rindex(b"data: ")
    async with ByteServer(Answer.sse(said[:middle], 0.3, said[middle:])) as server:
        response = await ask(model_of(server.url, "gemini"), streamed=True)

    assert response.usage == Usage(input_tokens=20, output_tokens=10, reasoning_tokens=3)


class CountingServer(ByteServer):
    """Counts connections as well."""

    connections = 0

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await super()._connected(reader, writer)


@BOTH_WAYS
async def test_turns_one_after_the_other_share_a_connection(wire: str, streamed: bool):
    async with CountingServer(good(wire, streamed=streamed)) as server:
        model = model_of(server.url, wire)
        for _ in range(3):
            assert (await ask(model, streamed=streamed)).text == TEXT

    assert len(server.requests) == 3
    assert server.connections == 1


@BOTH_WAYS
async def test_a_kept_connection_that_the_server_closed_meanwhile_does_no_harm(
    wire: str, streamed: bool
):
    closing = replace(good(wire, streamed=streamed), ending=Ending.COMPLETE)
    async with CountingServer(closing) as server:
        model = model_of(server.url, wire)
        await ask(model, streamed=streamed)
        for writer in server._connections.values():
            writer.close()
        await asyncio.sleep(0.02)
        response = await ask(model, streamed=streamed)

    assert response.text == TEXT
    assert server.connections == 2
    assert len(server.requests) == 2


@BOTH_WAYS
async def test_a_kept_connection_that_closes_on_the_next_request_is_an_error_to_try_again(
    wire: str, streamed: bool
):
    hangs_up = Answer(silent=True, ending=Ending.EOF)
    async with CountingServer(good(wire, streamed=streamed), hangs_up) as server:
        model = model_of(server.url, wire)
        await ask(model, streamed=streamed)
        error = await failed(model, streamed=streamed)

    assert (error.kind, error.retryable) == (K.DISCONNECTED, True)
    assert server.connections == 1
    assert len(server.requests) == 2


@PLAIN_AND_STREAMED
async def test_an_answer_that_comes_before_the_request_was_read_counts(streamed: bool):
    async def answer_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = body("chat", streamed=streamed)
        media_type = b"text/event-stream" if streamed else b"application/json"
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s"
            % (media_type, len(said), said)
        )
        await asyncio.Event().wait()

    async with serving(answer_at_once) as url:
        response = await ask(model_of(url), streamed=streamed)

    assert response.text == TEXT


@PLAIN_AND_STREAMED
async def test_a_server_that_does_not_take_the_request_is_waited_for_so_long(streamed: bool):
    async def take_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]
        await asyncio.Event().wait()

    long = ModelRequest(messages=(Message.user("x" * 20_000_000),))
    async with serving(take_nothing) as url:
        error = await failed(model_of(url, read_timeout=0.2), streamed=streamed, request=long)

    assert (error.kind, error.retryable) == (K.TIMEOUT, True)
    assert "accepted no data of the request for 0.2 seconds" in str(error)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.0\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 300_000 + b"\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
    ],
    ids=lambda said: said[:48],
)
@PLAIN_AND_STREAMED
async def test_what_is_no_http_is_a_broken_connection(said: bytes, streamed: bool):
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()

    async with serving(speak) as url:
        error = await failed(model_of(url), streamed=streamed)

    assert (error.kind, error.retryable) == (K.DISCONNECTED, True)
    assert url in str(error)


async def test_a_client_of_your_own_that_is_closed_is_named():
    client = httpx2.AsyncClient()
    await client.aclose()
    async with ByteServer(good("chat", streamed=False)) as server:
        error = await failed(model_of(server.url, client=client), streamed=False)

    assert (error.kind, error.retryable) == (K.INVALID_REQUEST, False)
    assert "client" in str(error)
    assert "closed" in str(error)


async def test_a_client_of_your_own_serves_one_event_loop_only():
    def reuse(_: httpx2.Request) -> httpx2.Response:
        """What a connection does that was opened in a loop which is over."""
        raise RuntimeError("Event loop is closed")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(reuse)) as client:
        error = await failed(model_of("http://x", client=client), streamed=False)

    assert (error.kind, error.retryable) == (K.INVALID_REQUEST, False)
    assert "another event loop" in str(error)


async def test_event_loops_in_several_threads_do_not_meet():
    async with ByteServer(good("chat", streamed=False)) as server:
        agent = Agent(model_of(server.url))

        def work() -> list[str | None]:
            return [agent.run_sync("hi").final_response for _ in range(5)]

        answers = await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))

    assert answers == [[TEXT] * 5] * 4


# Headers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-note", "a\r\nx-evil: 1"),
        ("x-note", "a\nb"),
        ("x-note", "grün"),
        ("x-note", "nul\x00"),
        ("x-note: y\r\nx-evil", "1"),
        ("x note", "1"),
        ("", "1"),
        ("content-length", "3"),
        ("Transfer-Encoding", "chunked"),
    ],
)
@PLAIN_AND_STREAMED
async def test_a_header_that_can_not_be_sent_is_named_but_its_value_is_not(name, value, streamed):
    request = replace(REQUEST, settings=ModelSettings(extra_headers={name: value}))
    async with ByteServer(good("chat", streamed=streamed)) as server:
        error = await failed(model_of(server.url), streamed=streamed, request=request)

    assert server.requests == []
    assert (error.kind, error.retryable) == (K.INVALID_REQUEST, False)
    assert f"header {name.lower()!r}" in str(error)
    if isinstance(value, str) and len(value) > 1:
        assert repr(value) not in str(error)
        assert value not in str(error)


@EVERY_WIRE
async def test_own_headers_take_the_place_of_ours_but_never_of_the_key(wire: str):
    auth = KNOWN_PROVIDERS[PROVIDERS[wire]].auth
    sent: list[httpx2.Headers] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers)
        media_type = {"content-type": "application/json"}
        return httpx2.Response(200, headers=media_type, content=body(wire, streamed=False))

    own = {auth.header.title(): "mine", "Content-Type": "application/json; x=1", "X-Own": "1"}
    request = replace(REQUEST, settings=ModelSettings(extra_headers=own))
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        await ask(model_of("http://x", wire, client=client), streamed=False, request=request)

    assert sent[0].get_list(auth.header) == [f"{auth.prefix}{KEY}"]
    assert sent[0].get_list("content-type") == ["application/json; x=1"]
    assert sent[0]["x-own"] == "1"


# Many at once, and ending early


async def test_three_hundred_turns_at_once_over_one_agent():
    async with ByteServer(good("chat", streamed=True)) as server:
        # All share one event loop with the server, so that each is long in coming.
        agent = Agent(model_of(server.url, read_timeout=60.0, connect_timeout=60.0))
        states = await asyncio.gather(*(run(agent, streamed=True) for _ in range(300)))

    assert {state.final_response for state in states} == {TEXT}
    assert len(server.requests) == 300


def halting(wire: str) -> Answer:
    """A stream that says something and then nothing any more."""
    said = body(wire, streamed=True)
    first_text = said.index(b"\n\n", said.index(b"Hello")) + 2
    return Answer.sse(said[:first_text], FOREVER, said[first_text:])


async def leaves_no_task(before: set[Any]) -> bool:
    """Whether all that was started since then is over."""
    for _ in range(500):
        await asyncio.sleep(0.01)
        if asyncio.all_tasks() <= before:
            return True
    return False


@EVERY_WIRE
async def test_a_cancelled_stream_closes_its_connection_and_leaves_nothing(wire: str):
    async with ByteServer(halting(wire)) as server:
        before = asyncio.all_tasks()
        heard = asyncio.Event()

        async def listen() -> None:
            async for part in model_of(server.url, wire).stream(REQUEST):
                if isinstance(part, TextDelta):
                    heard.set()

        task = asyncio.create_task(listen())
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.disconnects)
        assert await leaves_no_task(before)


@EVERY_WIRE
async def test_a_stream_that_is_left_early_closes_its_connection(wire: str):
    async with ByteServer(halting(wire)) as server:
        parts = model_of(server.url, wire).stream(REQUEST)
        async for part in parts:
            if isinstance(part, TextDelta):
                break
        await parts.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        await server.until(lambda: server.disconnects)
        assert server.disconnects == 1


@PLAIN_AND_STREAMED
async def test_a_turn_that_is_cancelled_before_the_answer_closes_its_connection(streamed: bool):
    async with ByteServer(Answer.never()) as server:
        task = asyncio.create_task(ask(model_of(server.url), streamed=streamed))
        await server.until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.disconnects)
        assert server.disconnects == 1


async def test_a_run_that_is_left_in_the_middle_closes_its_connection():
    async with ByteServer(halting("chat")) as server:
        parts = Agent(model_of(server.url)).stream("hi")
        async for _ in parts:
            break
        await parts.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        await server.until(lambda: server.disconnects)
        assert server.disconnects == 1


PROGRAM = """
import asyncio, logging, sys
from stepwell import Agent, TextDelta
from stepwell.models.provider import Provider
from stepwell.models import ModelRequest
from stepwell.messages import Message

logging.getLogger("asyncio").setLevel(logging.ERROR)  # imports that take long are not the point
model = Provider.compatible(sys.argv[1]).model("m")
agent = Agent(model)
request = ModelRequest(messages=(Message.user("hi"),))

print(agent.run_sync("hi").final_response)
print(agent.run_sync("hi").final_response)  # another event loop

async def streamed():
    return [part.text async for part in agent.stream("hi") if isinstance(part, TextDelta)]

print("".join(asyncio.run(streamed())))

async def left_early():
    async for part in model.stream(request):
        return part

print(asyncio.run(left_early()))

async def cancelled():
    task = asyncio.create_task(streamed())
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

asyncio.run(cancelled())
asyncio.run(cancelled())
"""


async def test_a_program_ends_without_a_warning():
    plain, streamed = good("chat", streamed=False), good("chat", streamed=True)
    async with ByteServer(plain, plain, streamed) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-X", "dev", "-c", PROGRAM, server.url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate()

    assert err.decode() == ""
    assert process.returncode == 0
    assert out.decode().splitlines()[:3] == [TEXT, TEXT, TEXT]
