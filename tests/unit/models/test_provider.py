"""A provider and its models: where they are asked, with what, and what becomes of the answer."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from msgspec import json

from stepwell import Message
from stepwell.errors import ConfigurationError, ModelError, ModelErrorKind
from stepwell.messages import FinishReason, ToolCall, Usage
from stepwell.models import (
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ResponseEnd,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageReport,
)
from stepwell.models.frames import JsonLines
from stepwell.models.provider import Auth, Provider, ProviderModel
from stepwell.models.wire import AnthropicMessages, ChatCompletions, Gemini, OpenAIResponses
from stepwell.testing import FakeClock

ADDRESS = "https://acme.example/v1"
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ANSWER: dict[str, Any] = {
    "model": "gpt-4o-2024-08-06",
    "choices": [{"message": {"content": "Hi", "tool_calls": [CALL]}, "finish_reason": "stop"}],
    "usage": USAGE,
}


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "model": ANSWER["model"],
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


EVENTS = [
    chunk(content="H"),
    chunk(content="i"),
    chunk(tool_calls=[{"index": 0, **CALL}]),
    chunk("stop"),
    {"model": ANSWER["model"], "choices": [], "usage": USAGE},
]


def sse(*events: Any, done: bool = True) -> bytes:
    stream = b"".join(b"data: " + json.encode(event) + b"\n\n" for event in events)
    return stream + (b"data: [DONE]\n\n" if done else b"")


class Server:
    """Answers every request in the same way and keeps them; nothing goes over a network."""

    def __init__(self, content: bytes, *, status: int = 200, **headers: str) -> None:
        self.requests: list[httpx2.Request] = []
        self._reply = (status, content, {k.replace("_", "-"): v for k, v in headers.items()})

    @classmethod
    def json(cls, data: Any, **more: Any) -> "Server":
        return cls(json.encode(data), content_type="application/json; charset=utf-8", **more)

    @classmethod
    def stream(cls, content: bytes, **more: Any) -> "Server":
        return cls(content, content_type="text/event-stream", **more)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        status, content, headers = self._reply
        return httpx2.Response(status, content=content, headers=headers)

    def model(self, *, settings: ModelSettings | None = None, **provider: Any) -> ProviderModel:
        acme = Provider(**{"name": "acme", "base_url": ADDRESS, **provider})
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        return acme.model(
            "large",
            api_key="sk-1",
            client=client,
            clock=FakeClock(),
            settings=settings or ModelSettings(),
        )

    @property
    def body(self) -> Any:
        return json.decode(self.requests[-1].content)


def asked(**settings: Any) -> ModelRequest:
    return ModelRequest(messages=(Message.user("Hi"),), settings=ModelSettings(**settings))


@pytest.mark.parametrize(
    ("base_url", "path", "url"),
    [
        ("https://a.example/v1", "/chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1/", "/chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1//", "/chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example", "/chat/completions", "https://a.example/chat/completions"),
        ("https://a.example:8443/x/v1", "/responses", "https://a.example:8443/x/v1/responses"),
        ("http://[::1]:8080/v1", "/responses", "http://[::1]:8080/v1/responses"),
        ("https://a.example", "/v1/messages", "https://a.example/v1/messages"),
        ("https://a.example/v1", "/v1/messages", "https://a.example/v1/messages"),
        ("https://a.example/v1/", "/v1/messages", "https://a.example/v1/messages"),
        ("https://a.example/proxy/v1", "/v1/messages", "https://a.example/proxy/v1/messages"),
        ("https://a.example/v1", "/v1beta/models/m:x", "https://a.example/v1/v1beta/models/m:x"),
        ("https://a.example/v1beta", "/v1beta/models/m:x", "https://a.example/v1beta/models/m:x"),
        ("https://a.example", "/v1beta/m:x?alt=sse", "https://a.example/v1beta/m:x?alt=sse"),
        (
            "https://a.example/v1beta?key_id=7",
            "/v1beta/m:x?alt=sse",
            "https://a.example/v1beta/m:x?key_id=7&alt=sse",
        ),
        (
            "https://r.azure.example/openai/deployments/gpt?api-version=2024-10-21",
            "/chat/completions",
            "https://r.azure.example/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
        ),
        (
            "https://r.azure.example/openai/v1/?api-version=preview",
            "/responses",
            "https://r.azure.example/openai/v1/responses?api-version=preview",
        ),
        ("https://a.example/v1#part", "/responses", "https://a.example/v1/responses"),
    ],
)
def test_addresses_are_joined(base_url: str, path: str, url: str) -> None:
    assert Provider(name="acme", base_url=base_url).url(path) == url


@pytest.mark.parametrize(
    ("wire", "streaming", "path"),
    [
        (ChatCompletions(), False, "/v1/chat/completions"),
        (OpenAIResponses(), True, "/v1/responses"),
        (AnthropicMessages(), True, "/v1/messages"),
        (Gemini(), True, "/v1/v1beta/models/large:streamGenerateContent?alt=sse"),
    ],
)
async def test_the_path_is_that_of_the_format(wire: Any, streaming: bool, path: str) -> None:
    server = Server(b"", status=500)
    model = server.model(wire=wire)
    with pytest.raises(ModelError):
        await (anext(model.stream(asked())) if streaming else model.respond(asked()))

    assert str(server.requests[0].url) == f"https://acme.example{path}"


@pytest.mark.parametrize(
    "address",
    [
        *("acme.example/v1", "ftp://acme.example", "http://", "https:///v1", "http://:8080"),
        *("file:///etc/passwd", "//acme.example", "http://[::1", "http://acme.example:port"),
        *("http://acme.example:99999", "http://ac me.example/v1", "http://acme.example/v 1"),
    ],
)
def test_what_is_no_address_is_refused_with_advice(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"address for acme.*http\(s\)://host/path"):
        Provider(name="acme", base_url=address).model("large")


@pytest.mark.parametrize(
    "address",
    [
        "https://user:hunter2@acme.example/v1",
        "https://hunter2@acme.example/v1",
        "https://:hunter2@acme.example/v1",
        "ftp://user:hunter2@acme.example",
        "user:hunter2@acme.example",
        "https://user:hunter2@acme.example:port/v1",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_shown(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"use api_key=") as raised:
        Provider(name="acme", base_url=address).model("large")

    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_address_comes_from_the_caller_the_environment_or_the_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acme = Provider(name="acme", base_url=ADDRESS, base_url_env="ACME_URL")
    monkeypatch.delenv("ACME_URL", raising=False)
    assert acme.model("m").provider.base_url == ADDRESS

    monkeypatch.setenv("ACME_URL", " http://localhost:1234/v1 ")
    assert acme.model("m").provider.base_url == "http://localhost:1234/v1"
    assert acme.model("m", base_url="http://b.example").provider.base_url == "http://b.example"

    monkeypatch.setenv("ACME_URL", " ")
    assert acme.model("m").provider.base_url == ADDRESS


def test_a_missing_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACME_URL", raising=False)
    with pytest.raises(ConfigurationError, match="acme has no address; set ACME_URL or give base"):
        Provider(name="acme", base_url="", base_url_env="ACME_URL").model("m")
    with pytest.raises(ConfigurationError, match="acme has no address; give base_url"):
        Provider(name="acme", base_url="").model("m")


def test_a_model_has_a_name() -> None:
    acme = Provider(name="acme", base_url=ADDRESS, default_model="small")

    assert acme.model().name == "acme:small"
    assert acme.model("large").name == "acme:large"
    assert repr(acme.model()) == f"<model acme:small at {ADDRESS}>"
    with pytest.raises(ConfigurationError, match="acme:<model>"):
        Provider(name="acme", base_url=ADDRESS).model()


def test_any_compatible_server_is_one_line() -> None:
    model = Provider.compatible("http://localhost:8000/v1", name="mine").model("llama")

    assert (model.name, model.key) == ("mine:llama", None)
    assert model.provider.wire == ChatCompletions()


async def test_a_whole_answer() -> None:
    server = Server.json(ANSWER, x_request_id="req_1")
    response = await server.model(prices="openai").respond(asked())

    assert response == ModelResponse(
        text="Hi",
        tool_calls=(ToolCall(id="c1", name="add", arguments={"a": 1}),),
        finish_reason=FinishReason.TOOL_CALLS,
        usage=Usage(input_tokens=1000, output_tokens=100),
        cost=pytest.approx(0.0035),
        model="gpt-4o-2024-08-06",
        request_id="req_1",
    )
    assert "stream" not in server.body


async def test_a_stream_ends_with_the_same_response() -> None:
    headers = {"x_request_id": "req_1"}
    whole = await Server.json(ANSWER, **headers).model(prices="openai").respond(asked())
    server = Server.stream(sse(*EVENTS), **headers)
    parts = [part async for part in server.model(prices="openai").stream(asked())]
    made = ToolCall(id="c1", name="add", arguments={"a": 1})

    assert parts == [
        TextDelta("H"),
        TextDelta("i"),
        ToolCallStart(index=0, id="c1", name="add"),
        ToolCallDelta(index=0, arguments='{"a": 1}'),
        ToolCallEnd(index=0, call=made),
        UsageReport(Usage(input_tokens=1000, output_tokens=100), whole.cost),
        ResponseEnd(whole),
    ]
    assert server.body["stream"] is True


async def test_a_server_that_does_not_stream_is_taken_whole() -> None:
    parts = [part async for part in Server.json(ANSWER).model().stream(asked())]

    assert [type(part) for part in parts] == [
        TextDelta,
        ToolCallStart,
        ToolCallEnd,
        UsageReport,
        ResponseEnd,
    ]
    assert parts[-1].response.text == parts[0].text == "Hi"


async def test_a_provider_may_stream_json_lines() -> None:
    content = b"".join(json.encode(event) + b"\n" for event in EVENTS)
    server = Server(content, content_type="application/x-ndjson")
    parts = [part async for part in server.model(framing=JsonLines).stream(asked())]

    assert parts[-1].response.text == "Hi"


async def test_the_cost_that_the_provider_tells_counts_more_than_the_list() -> None:
    answer = {**ANSWER, "usage": {**USAGE, "cost": 0.5}}
    response = await Server.json(answer).model(prices="openai").respond(asked())

    assert response.cost == 0.5


async def test_a_model_that_the_server_renames_is_priced_by_the_name_it_was_asked_by() -> None:
    server = Server.json({**ANSWER, "model": "deployment-7"})

    response = await server.model(prices="openai").respond(asked(model="gpt-4o"))

    assert response.model == "deployment-7"
    assert response.cost == pytest.approx(0.0035)


async def test_a_model_without_a_price_costs_nothing_that_is_known() -> None:
    assert (await Server.json(ANSWER).model().respond(asked())).cost == 0.0


async def test_the_model_that_was_asked_is_told_if_the_answer_names_none() -> None:
    server = Server.json({**ANSWER, "model": None})

    assert (await server.model().respond(asked())).model == "large"
    assert (await server.model().respond(asked(model="small"))).model == "small"


async def test_settings_of_the_request_count_more_than_those_of_the_model() -> None:
    server = Server.json(ANSWER)
    model = server.model(settings=ModelSettings(temperature=0.5, seed=7, extra_body={"a": 1}))
    await model.respond(asked(temperature=0.1, extra_body={"b": 2}))

    assert (server.body["temperature"], server.body["seed"]) == (0.1, 7)
    assert (server.body["a"], server.body["b"]) == (1, 2)


def test_settings_of_the_model_count_more_than_those_of_the_provider() -> None:
    general = ModelSettings(temperature=0.9, top_p=0.3)
    acme = Provider(name="acme", base_url=ADDRESS, settings=general)
    settings = acme.model("m", settings=ModelSettings(temperature=0.5)).provider.settings

    assert (settings.temperature, settings.top_p) == (0.5, 0.3)
    assert acme.model("m").provider.settings == general


async def test_another_model_can_be_asked_for_in_a_request() -> None:
    server = Server.json(ANSWER)
    await server.model().respond(asked(model="small"))
    assert server.body["model"] == "small"

    gemini = Server(b"", status=500)
    with pytest.raises(ModelError):
        await gemini.model(wire=Gemini()).respond(asked(model="small"))
    assert "/models/small:" in str(gemini.requests[0].url)


async def test_headers_of_provider_and_request_are_sent_and_each_once() -> None:
    server = Server.json(ANSWER)
    model = server.model(headers={"X-Provider": "p", "X-Both": "p"}, auth=Auth(header="API-Key"))
    await model.respond(asked(extra_headers={"x-both": "r", "X-Request": "r", "api-key": "evil"}))
    sent = server.requests[0].headers

    assert (sent["x-provider"], sent["x-both"], sent["x-request"]) == ("p", "r", "r")
    assert sent["api-key"] == "Bearer sk-1", "the key can't be replaced"
    assert sent["content-type"] == "application/json"
    names = [name.lower() for name, _ in sent.raw]
    assert len(set(names)) == len(names)


async def test_without_a_key_no_key_is_sent() -> None:
    server = Server.json(ANSWER)
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(server))
    await Provider.compatible(ADDRESS).model("m", client=client).respond(asked())

    assert "authorization" not in server.requests[0].headers


async def failure(
    failing: ProviderModel, *, streaming: bool = False, **settings: Any
) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await (drained(failing, settings) if streaming else failing.respond(asked(**settings)))
    return raised.value


async def drained(model: ProviderModel, settings: dict[str, Any]) -> None:
    async for _ in model.stream(asked(**settings)):
        pass


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_error_answer_tells_whose_it_is_and_how_long_to_wait(streaming: bool) -> None:
    server = Server.json(
        {"error": {"message": "Slow down"}},
        status=429,
        x_request_id="req_1",
        retry_after="Thu, 01 Jan 2026 00:00:30 GMT",
    )
    error = await failure(server.model(), streaming=streaming)

    assert error.kind is ModelErrorKind.RATE_LIMIT
    assert (error.status, error.request_id, error.provider_text) == (429, "req_1", "Slow down")
    assert error.retry_after is not None
    assert str(error).startswith("acme:large answered 429 (rate_limit): Slow down")


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"7", b'"x"', b'{"choices": 7}', b"\xff", b"[" * 100_000, b"<html>"]
)
async def test_an_answer_of_another_shape_is_malformed(body: bytes, streaming: bool) -> None:
    server = Server(body, content_type="application/json", x_request_id="req_1")
    error = await failure(server.model(), streaming=streaming)

    assert error.kind is ModelErrorKind.MALFORMED_RESPONSE
    assert error.retryable is True
    assert error.request_id == "req_1"
    assert str(error).startswith("acme:large: ")


@pytest.mark.parametrize(
    "event",
    [
        *(b"{", b"[]", b"7", b'"x"', b'{"choices": 7}', b"\xff", b'{"choices": [[]]}'),
        *(b'{"choices": [{"delta": {"content": 7}}]}', b"[" * 100_000),
        b'{"choices": [{"delta": {"tool_calls": [7]}}]}',
    ],
)
async def test_an_event_of_another_shape_is_malformed(event: bytes) -> None:
    server = Server.stream(sse(EVENTS[0], done=False) + b"data: " + event + b"\n\n")
    error = await failure(server.model(), streaming=True)

    assert error.kind is ModelErrorKind.MALFORMED_RESPONSE


async def test_a_failed_turn_tells_what_it_cost() -> None:
    filtered = {**ANSWER, "choices": [{"message": {}, "finish_reason": "content_filter"}]}
    whole = await failure(Server.json(filtered).model(prices="openai"), model="gpt-4o")
    events = (chunk("content_filter"), {"choices": [], "usage": USAGE})
    streamed = await failure(
        Server.stream(sse(*events)).model(prices="openai"), streaming=True, model="gpt-4o"
    )

    for error in (whole, streamed):
        assert error.kind is ModelErrorKind.CONTENT_FILTER
        assert error.usage == Usage(input_tokens=1000, output_tokens=100)
        assert error.cost == pytest.approx(0.0035)


async def test_an_error_in_a_whole_answer_or_a_stream_is_classified() -> None:
    body = {"error": {"code": 429, "message": "Provider returned error"}}
    whole = await failure(Server.json(body).model())
    streamed = await failure(
        Server.stream(sse(EVENTS[0], body, done=False)).model(), streaming=True
    )

    for error in (whole, streamed):
        assert (error.kind, error.status) == (ModelErrorKind.RATE_LIMIT, 429)
        assert "acme:large" in str(error)


async def test_a_failed_response_keeps_what_was_paid_also_when_it_came_whole() -> None:
    body = {
        "object": "response",
        "status": "failed",
        "error": {"code": "server_error", "message": "Oh no"},
        "output": [],
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }
    error = await failure(Server.json(body).model(wire=OpenAIResponses()))

    assert error.kind is ModelErrorKind.SERVER
    assert error.usage == Usage(input_tokens=1000, output_tokens=100)


async def test_a_request_that_is_no_json_is_refused_before_it_is_sent() -> None:
    server = Server.json(ANSWER)
    error = await failure(server.model(), extra_body={"odd": object()})

    assert error.kind is ModelErrorKind.INVALID_REQUEST
    assert "can't be written as JSON" in str(error)
    assert server.requests == []


async def test_a_text_that_is_no_unicode_is_refused_before_it_is_sent() -> None:
    server = Server.json(ANSWER)
    request = ModelRequest(messages=(Message.user("a\ud800"),))
    with pytest.raises(ModelError) as raised:
        await server.model().respond(request)

    assert raised.value.kind is ModelErrorKind.INVALID_REQUEST
    assert server.requests == []


async def test_a_setting_that_the_format_lacks_is_refused_by_the_models_name() -> None:
    server = Server.json(ANSWER)
    error = await failure(server.model(wire=AnthropicMessages()), seed=7)

    assert error.kind is ModelErrorKind.INVALID_REQUEST
    assert str(error).startswith("acme:large: ")
    assert server.requests == []


async def test_a_redirect_is_not_followed() -> None:
    server = Server(b"", status=307, location="https://evil.example/v1")
    error = await failure(server.model())

    assert error.kind is ModelErrorKind.INVALID_REQUEST
    assert len(server.requests) == 1


async def test_a_stream_that_is_left_early_lets_go_of_its_connection() -> None:
    closed: list[bool] = []

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield sse(*EVENTS, done=False)
            yield b"data: never read"

        async def aclose(self) -> None:
            closed.append(True)

    client = httpx2.AsyncClient(
        transport=httpx2.MockTransport(lambda _: httpx2.Response(200, stream=Body()))
    )
    stream = Provider.compatible(ADDRESS).model("m", client=client).stream(asked())
    assert await anext(stream) == TextDelta("H")
    await stream.aclose()  # type: ignore[attr-defined]

    assert closed == [True]
    assert client.is_closed is False, "a client of one's own stays open"


def test_a_known_provider_takes_a_key_in_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    assert Provider.named("openai").model("gpt-5", api_key=lambda: "sk-1").name == "openai:gpt-5"
    with pytest.raises(ConfigurationError, match=r'Provider\.named\("openai"\)'):
        Provider.named("openai").model("gpt-5")
    with pytest.raises(ConfigurationError, match=r"'opneai'. Known providers: anthropic"):
        Provider.named("opneai")


@pytest.mark.parametrize(
    "query", ["key=AIzaSecret", "api-version=1&api_key=sk-1", "access_token=x9", "sig=abc"]
)
def test_a_key_in_the_address_is_refused_and_not_shown(query: str) -> None:
    with pytest.raises(ConfigurationError, match="contains a key in its query") as refused:
        Provider.compatible(f"{ADDRESS}?{query}").model("m")

    assert query.rpartition("=")[2] not in str(refused.value)


def test_headers_of_a_provider_are_not_shown() -> None:
    acme = Provider(name="acme", base_url=ADDRESS, headers={"x-team": "canary-5c1"})

    assert "canary-5c1" not in repr(acme)
    assert "acme" in repr(acme)


def test_an_address_that_goes_too_far_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ends with /chat/completions.*remove it"):
        Provider.compatible(f"{ADDRESS}/chat/completions/").model("m")


async def test_what_is_not_found_says_where_it_was_looked_for() -> None:
    error = await failure(Server.json({"detail": "Not Found"}, status=404).model())

    assert error.kind is ModelErrorKind.NOT_FOUND
    assert f"asked at {ADDRESS}/chat/completions" in str(error)


def test_a_model_can_be_more_or_less_patient_than_its_provider() -> None:
    acme = Provider(name="acme", base_url=ADDRESS, read_timeout=60)

    assert acme.model("m").provider.read_timeout == 60
    assert acme.model("m", read_timeout=5).provider.read_timeout == 5


async def test_a_model_whose_price_should_be_known_and_is_not_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Server.json({**ANSWER, "model": None}).model(prices="openai")

    for _ in range(3):
        await model.respond(asked(model="nonesuch-1"))

    told = [record.getMessage() for record in caplog.records if "price" in record.getMessage()]
    assert told == [
        "no price is known for acme:nonesuch-1: it counts as free, and max_cost has no effect"
    ]
