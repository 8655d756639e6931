"""What providers say when they fail, as they really say it, and what it is taken for."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from stepwell.errors import ErrorType, ModelErrorKind
from stepwell.models.faults import (
    MAX_TEXT_LENGTH,
    complaint_of,
    error_answer,
    error_event,
    request_id,
    retry_after,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
K = ModelErrorKind


def error(message: Any, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def google(code: int, message: str, status: str, *details: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"code": code, "message": message, "status": status}
    return {"error": {**body, "details": list(details)} if details else body}


def anthropic(kind: str, message: str) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": "req_011CTWFpbkpKZzpBJezq7xnK",
    }


def openrouter(code: int, message: str, **metadata: Any) -> dict[str, Any]:
    return {"error": {"message": message, "code": code, "metadata": metadata}, "user_id": "user_1"}


API_KEY_INVALID = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
}
GROQ_TOO_LARGE = (
    "Request too large for model `llama-3.1-8b-instant` in organization `org_1` service tier "
    "`on_demand` on tokens per minute (TPM): Limit 6000, Requested 12328, please reduce your "
    "message size and try again."
)

ANSWERS: dict[str, list[tuple[int, Any, ModelErrorKind]]] = {
    "openai": [
        (
            401,
            error(
                "Incorrect API key provided: sk-12********cdef. You can find your API key at ...",
                type="invalid_request_error",
                param=None,
                code="invalid_api_key",
            ),
            K.AUTHENTICATION,
        ),
        (
            403,
            error(
                "Country, region, or territory not supported",
                type="request_forbidden",
                param=None,
                code="unsupported_country_region_territory",
            ),
            K.AUTHENTICATION,
        ),
        (
            404,
            error(
                "The model `gpt-9` does not exist or you do not have access to it.",
                type="invalid_request_error",
                param=None,
                code="model_not_found",
            ),
            K.NOT_FOUND,
        ),
        (
            429,
            error(
                "You exceeded your current quota, please check your plan and billing details.",
                type="insufficient_quota",
                param=None,
                code="insufficient_quota",
            ),
            K.QUOTA,
        ),
        (
            429,
            error(
                "Rate limit reached for gpt-5 in organization org-1 on tokens per min (TPM): Limit "
                "30000, Used 29000, Requested 2000. Please try again in 2s.",
                type="tokens",
                param=None,
                code="rate_limit_exceeded",
            ),
            K.RATE_LIMIT,
        ),
        (
            429,
            error(
                "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit "
                "30000, Requested 30601. The input or output tokens must be reduced in order to "
                "run successfully.",
                type="tokens",
                param=None,
                code="rate_limit_exceeded",
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (
            400,
            error(
                "This model's maximum context length is 128000 tokens. However, your messages "
                "resulted in 130001 tokens.",
                type="invalid_request_error",
                param="messages",
                code="context_length_exceeded",
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (
            400,
            error(
                "Unsupported value: 'temperature' does not support 0.2 with this model.",
                type="invalid_request_error",
                param="temperature",
                code="unsupported_value",
            ),
            K.INVALID_REQUEST,
        ),
        (
            400,
            error(
                "Invalid prompt: your prompt was flagged as potentially violating our usage "
                "policy. Please try again with a different prompt.",
                type="invalid_request_error",
                param=None,
                code="invalid_prompt",
            ),
            K.CONTENT_FILTER,
        ),
        (
            500,
            error(
                "The server had an error while processing your request. Sorry about that!",
                type="server_error",
                param=None,
                code=None,
            ),
            K.SERVER,
        ),
        (503, error("That model is currently overloaded.", type="server_error"), K.OVERLOADED),
    ],
    "anthropic": [
        (401, anthropic("authentication_error", "invalid x-api-key"), K.AUTHENTICATION),
        (403, anthropic("permission_error", "Your API key has no access"), K.AUTHENTICATION),
        (402, anthropic("billing_error", "There is an issue with your billing"), K.QUOTA),
        (404, anthropic("not_found_error", "model: claude-9"), K.NOT_FOUND),
        (
            413,
            anthropic("request_too_large", "Request exceeds the maximum size"),
            K.CONTEXT_TOO_LONG,
        ),
        (429, anthropic("rate_limit_error", "would exceed your rate limit"), K.RATE_LIMIT),
        (529, anthropic("overloaded_error", "Overloaded"), K.OVERLOADED),
        (500, anthropic("api_error", "Internal server error"), K.SERVER),
        (504, anthropic("timeout_error", "Request timed out"), K.TIMEOUT),
        (
            400,
            anthropic(
                "invalid_request_error",
                "Your credit balance is too low to access the Anthropic API.",
            ),
            K.QUOTA,
        ),
        (
            400,
            anthropic(
                "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (
            400,
            anthropic(
                "invalid_request_error",
                "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, "
                "decrease input length or `max_tokens` and try again",
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (
            400,
            anthropic("invalid_request_error", "Output blocked by content filtering policy"),
            K.CONTENT_FILTER,
        ),
        (
            400,
            anthropic(
                "invalid_request_error",
                "messages.5: `tool_use` ids were found without `tool_result` blocks",
            ),
            K.INVALID_REQUEST,
        ),
    ],
    "gemini": [
        (
            400,
            google(
                400,
                "API key not valid. Please pass a valid API key.",
                "INVALID_ARGUMENT",
                API_KEY_INVALID,
            ),
            K.AUTHENTICATION,
        ),
        (
            400,
            google(400, "API key expired. Please renew the API key.", "INVALID_ARGUMENT"),
            K.AUTHENTICATION,
        ),
        (
            400,
            google(
                400,
                "The input token count (1200000) exceeds the maximum number of tokens allowed "
                "(1048576).",
                "INVALID_ARGUMENT",
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (
            400,
            google(400, "Please ensure that function call turn comes ...", "INVALID_ARGUMENT"),
            K.INVALID_REQUEST,
        ),
        (
            400,
            google(400, "User location is not supported for the API use.", "FAILED_PRECONDITION"),
            K.INVALID_REQUEST,
        ),
        (403, google(403, "Method doesn't allow ...", "PERMISSION_DENIED"), K.AUTHENTICATION),
        (
            404,
            google(404, "models/gemini-9 is not found for API version v1beta", "NOT_FOUND"),
            K.NOT_FOUND,
        ),
        (
            429,
            google(429, "You exceeded your current quota", "RESOURCE_EXHAUSTED"),
            K.RATE_LIMIT,
        ),
        (
            429,
            [google(429, "Resource exhausted. Please try again later.", "RESOURCE_EXHAUSTED")],
            K.RATE_LIMIT,
        ),
        (500, google(500, "An internal error has occurred.", "INTERNAL"), K.SERVER),
        (503, google(503, "The model is overloaded.", "UNAVAILABLE"), K.OVERLOADED),
        (504, google(504, "Deadline expired", "DEADLINE_EXCEEDED"), K.TIMEOUT),
    ],
    "openrouter": [
        (401, openrouter(401, "No auth credentials found"), K.AUTHENTICATION),
        (402, openrouter(402, "Insufficient credits. Add more using ..."), K.QUOTA),
        (
            403,
            openrouter(
                403,
                "Your chosen model requires moderation and your input was flagged",
                reasons=["violence"],
                flagged_input="...",
                provider_name="OpenAI",
            ),
            K.CONTENT_FILTER,
        ),
        (404, openrouter(404, "No endpoints found that support tool use."), K.NOT_FOUND),
        (408, openrouter(408, "Your request timed out"), K.TIMEOUT),
        (
            429,
            openrouter(
                429,
                "Provider returned error",
                raw="z-ai/glm is temporarily rate-limited upstream. Please retry shortly.",
                provider_name="BaseTen",
            ),
            K.RATE_LIMIT,
        ),
        (
            400,
            openrouter(
                400,
                "Provider returned error",
                raw='{"error":{"message":"prompt is too long: 208310 tokens > 200000 maximum"}}',
                provider_name="Anthropic",
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (
            400,
            openrouter(
                400,
                "This endpoint's maximum context length is 32768 tokens. However, you requested "
                "about 42832 tokens (42832 of text input).",
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (502, openrouter(502, "Provider returned error"), K.SERVER),
        (503, openrouter(503, "No instances available"), K.OVERLOADED),
    ],
    "azure": [
        (
            401,
            {
                "error": {
                    "code": "401",
                    "message": "Access denied due to invalid subscription key or wrong API "
                    "endpoint.",
                }
            },
            K.AUTHENTICATION,
        ),
        (
            401,
            {"statusCode": 401, "message": "Unauthorized. Access token is missing, invalid"},
            K.AUTHENTICATION,
        ),
        (
            404,
            error(
                "The API deployment for this resource does not exist.", code="DeploymentNotFound"
            ),
            K.NOT_FOUND,
        ),
        (
            429,
            error(
                "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version "
                "2024-05-01-preview have exceeded token rate limit of your current OpenAI S0 "
                "pricing tier. Please retry after 86400 seconds.",
                code="429",
            ),
            K.RATE_LIMIT,
        ),
        (
            400,
            error(
                "The response was filtered due to the prompt triggering Azure OpenAI's content "
                "management policy.",
                type=None,
                param="prompt",
                code="content_filter",
                status=400,
                innererror={"code": "ResponsibleAIPolicyViolation"},
            ),
            K.CONTENT_FILTER,
        ),
        (
            400,
            error("API version not supported", code="BadRequest"),
            K.INVALID_REQUEST,
        ),
    ],
    "vllm": [
        (
            400,
            {
                "object": "error",
                "message": "This model's maximum context length is 16384 tokens. However, you "
                "requested 122946 tokens (112946 in the messages, 10000 in the completion). "
                "Please reduce the length of the messages or completion.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
            K.CONTEXT_TOO_LONG,
        ),
        (
            400,
            error(
                "The prompt (total length 25938) is too long to fit into the model (context length "
                "4096).",
                type="BadRequestError",
                code=400,
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (
            404,
            {
                "object": "error",
                "message": "The model `x` does not exist.",
                "type": "NotFoundError",
                "param": None,
                "code": 404,
            },
            K.NOT_FOUND,
        ),
        (
            422,
            {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]},
            K.INVALID_REQUEST,
        ),
        (401, {"error": "Unauthorized"}, K.AUTHENTICATION),
        (
            500,
            {"object": "error", "message": "EngineCore", "type": "InternalServerError"},
            K.SERVER,
        ),
    ],
    "llama.cpp": [
        (
            400,
            error(
                "the request exceeds the available context size. try increasing the context size "
                "or enable context shift",
                code=400,
                type="exceed_context_size_error",
                n_prompt_tokens=14429,
                n_ctx=8192,
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (
            500,
            error(
                "the request exceeds the available context size. try increasing the context size "
                "or enable context shift",
                code=500,
                type="exceed_context_size_error",
            ),
            K.CONTEXT_TOO_LONG,
        ),
        (503, error("Loading model", code=503, type="unavailable_error"), K.OVERLOADED),
        (
            401,
            error("Invalid API Key", code=401, type="authentication_error"),
            K.AUTHENTICATION,
        ),
        (404, error("File Not Found", code=404, type="not_found_error"), K.NOT_FOUND),
        (
            501,
            error("This server does not support embeddings", code=501, type="not_supported_error"),
            K.INVALID_REQUEST,
        ),
    ],
    "ollama": [
        (
            404,
            error(
                'model "x" not found, try pulling it first', type="api_error", param=None, code=None
            ),
            K.NOT_FOUND,
        ),
        (
            400,
            error(
                "registry.ollama.ai/library/gemma3:4b does not support tools",
                type="api_error",
                param=None,
                code=None,
            ),
            K.INVALID_REQUEST,
        ),
        (400, {"error": "registry.ollama.ai/library/x does not support tools"}, K.INVALID_REQUEST),
        (
            500,
            error("model runner has unexpectedly stopped", type="api_error", code=None),
            K.SERVER,
        ),
    ],
    "groq": [
        (
            400,
            error(
                "Failed to call a function. Please adjust your prompt. See 'failed_generation' for "
                "more details.",
                type="invalid_request_error",
                code="tool_use_failed",
                failed_generation="<function=search>{}</function>",
            ),
            K.MALFORMED_RESPONSE,
        ),
        (
            400,
            error(
                "Failed to generate JSON. Please adjust your prompt.",
                type="invalid_request_error",
                code="json_validate_failed",
                failed_generation="",
            ),
            K.MALFORMED_RESPONSE,
        ),
        (
            413,
            error(GROQ_TOO_LARGE, type="tokens", code="rate_limit_exceeded"),
            K.CONTEXT_TOO_LONG,
        ),
        (
            429,
            error(
                "Rate limit reached for model `llama3-70b-8192` in organization `org_1` on : Limit "
                "500000, Used 500370, Requested 252. Please try again in 1m47.5854s.",
                type="tokens",
                code="rate_limit_exceeded",
            ),
            K.RATE_LIMIT,
        ),
        (
            498,
            error("Flex tier capacity exceeded", type="", code="capacity_exceeded"),
            K.OVERLOADED,
        ),
    ],
    "others": [
        (  # DeepSeek
            402,
            error("Insufficient Balance", type="unknown_error", code="invalid_request_error"),
            K.QUOTA,
        ),
        (  # Mistral
            429,
            {
                "object": "error",
                "message": "Service tier capacity exceeded for this model.",
                "type": "service_tier_capacity_exceeded",
                "param": None,
                "code": "3505",
            },
            K.RATE_LIMIT,
        ),
        (
            422,
            {
                "object": "error",
                "message": {"detail": [{"loc": ["body", "model"], "msg": "Field required"}]},
                "type": "invalid_request_error",
            },
            K.INVALID_REQUEST,
        ),
        (401, {"message": "Unauthorized", "request_id": "abc"}, K.AUTHENTICATION),
        (  # LM Studio
            400,
            {
                "error": "Trying to keep the first 111490 tokens when context the overflows. "
                "However, the model is loaded with context length of only 32768 tokens"
            },
            K.CONTEXT_TOO_LONG,
        ),
        (502, "<html><body><h1>502 Bad Gateway</h1></body></html>", K.SERVER),
        (520, "error code: 520", K.SERVER),
        (524, "error code: 524", K.TIMEOUT),
        (418, {}, K.INVALID_REQUEST),
        (500, [], K.SERVER),
        (500, None, K.SERVER),
        (409, error("Conflict"), K.SERVER),
        (400, {"errors": [{"message": "No route for that URI", "code": 7000}]}, K.INVALID_REQUEST),
    ],
}


def bodies() -> list[Any]:
    return [
        pytest.param(status, body, kind, id=f"{provider}-{status}-{kind}-{number}")
        for provider, rows in ANSWERS.items()
        for number, (status, body, kind) in enumerate(rows)
    ]


@pytest.mark.parametrize(("status", "body", "kind"), bodies())
def test_error_answers_of_real_providers(status: int, body: Any, kind: ModelErrorKind) -> None:
    data = body.encode() if isinstance(body, str) else json.encode(body)
    raised = error_answer("acme:large", status, {"x-request-id": "req_1"}, data, NOW)

    assert raised.kind is kind
    assert raised.retryable is kind.is_retryable
    assert raised.error_type is kind.error_type
    assert raised.status == status
    assert raised.request_id
    assert str(raised).startswith(f"acme:large answered {status} ({kind}): ")
    assert raised.provider_text is not None
    assert raised.provider_text in str(raised)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (error("Oh no"), "Oh no"),
        ({"error": "Oh no"}, "Oh no"),
        ({"message": "Oh no"}, "Oh no"),
        ({"detail": "Oh no"}, "Oh no"),
        ({"error": {"detail": "Oh no"}}, "Oh no"),
        ({"detail": [{"msg": "bad"}]}, '[{"msg":"bad"}]'),
        ([error("Oh no")], "Oh no"),
        ({"errors": [{"message": "Oh no"}]}, '{"errors":[{"message":"Oh no"}]}'),
        (
            openrouter(429, "Provider returned error", raw="slow down", provider_name="Base"),
            "Provider returned error: slow down",
        ),
        (openrouter(502, "Provider returned error", raw=None), "Provider returned error"),
        ("just words", "just words"),
        ({}, ""),
        ([], ""),
        (None, ""),
    ],
)
def test_the_text_is_found_wherever_a_provider_puts_it(body: Any, text: str) -> None:
    assert complaint_of(body).text == text
    assert error_answer("acme", 500, {}, json.encode(body), NOW).provider_text == text


def test_without_a_text_the_error_says_so() -> None:
    assert str(error_answer("acme", 500, {}, b"", NOW)) == "acme answered 500 (server): (no text)"


def test_a_long_text_is_cut() -> None:
    raised = error_answer("acme", 500, {}, json.encode(error("x" * 5000)), NOW)

    assert raised.provider_text == "x" * MAX_TEXT_LENGTH
    assert len(str(raised)) < MAX_TEXT_LENGTH + 100


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": "\xff"}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"error": ' * 50_000,
        b"{",
        b"not JSON\n\n at all",
        b'"\\ud800"',
        b"12",
        b"true",
        b'{"error": {"message": {"a": ["b"]}, "code": true, "details": {"reason": 1}}}',
        b'{"error": {"details": [1, null, {"reason": 3, "retryDelay": 7}], "status": []}}',
        b'{"error": [1]}',
        b'{"error": 1, "request_id": 7}',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_no_body_is_so_broken_that_it_is_not_an_answer(body: bytes) -> None:
    raised = error_answer("acme", 502, {}, body, NOW)

    assert raised.kind is K.SERVER
    assert raised.status == 502
    assert isinstance(str(raised), str)
    assert raised.request_id is None


json_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("error", "message", "detail", "details", "code", "type", "status", "reason"),
                    *("retryDelay", "request_id", "metadata", "raw"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(data=json_anything, status=st.integers(400, 599))
def test_any_json_is_classified(data: Any, status: int) -> None:
    body = json.encode(data)
    answer = error_answer("acme", status, {}, body, NOW)
    event = error_event("acme", json.decode(body))

    assert isinstance(answer.kind, ModelErrorKind)
    assert isinstance(event.kind, ModelErrorKind)
    assert isinstance(answer.provider_text, str)
    assert answer.retry_after is None or answer.retry_after >= 0


@given(body=st.binary(max_size=50), status=st.integers(300, 599))
def test_any_bytes_are_classified(body: bytes, status: int) -> None:
    assert error_answer("acme", status, {}, body, NOW).status == status


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_told_and_not_followed(status: int) -> None:
    raised = error_answer("acme", status, {"location": "https://evil.example/v1"}, b"", NOW)

    assert raised.kind is K.INVALID_REQUEST
    assert "https://evil.example/v1" in str(raised)
    assert "base_url" in str(raised)
    assert "(nowhere)" in str(error_answer("acme", status, {}, b"", NOW))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "20"}, 20.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 13:00:30 +0100"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 -0000"}, 30.0),
        ({"retry-after": "Thursday, 01-Jan-26 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu Jan  1 12:00:30 2026"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Thu, 99 Jan 2026 12:00:30 GMT"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds
    assert error_answer("acme", 429, headers, b"{}", NOW).retry_after == seconds


@given(given=st.text(max_size=40))
def test_no_wait_is_so_odd_that_it_raises(given: str) -> None:
    seconds = retry_after({"retry-after": given, "retry-after-ms": given}, NOW)

    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("34s", 34.0), ("34.5s", 34.5), ("0s", 0.0), ("later", None), (None, None), (3, None)],
)
def test_google_says_in_the_body_how_long_to_wait(delay: Any, seconds: float | None) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    help_ = {"@type": "type.googleapis.com/google.rpc.Help", "links": []}
    body = google(429, "You exceeded your current quota", "RESOURCE_EXHAUSTED", help_, info)

    assert error_answer("acme", 429, {}, json.encode(body), NOW).retry_after == seconds
    assert error_event("acme", body).retry_after == seconds


def test_the_header_counts_more_than_the_body() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    body = json.encode(google(429, "slow down", "RESOURCE_EXHAUSTED", info))

    assert error_answer("acme", 429, {"retry-after": "0"}, body, NOW).retry_after == 0.0


def test_the_error_tells_the_wait_and_the_request() -> None:
    headers = {"retry-after": "20", "x-request-id": "req_1"}
    raised = error_answer("acme:large", 429, headers, json.encode(error("Slow down")), NOW)

    assert str(raised) == (
        "acme:large answered 429 (rate_limit): Slow down "
        "[it asks to wait 20 seconds; request req_1]"
    )
    assert raised.error_type is ErrorType.RATE_LIMIT


@pytest.mark.parametrize(
    ("headers", "known_as"),
    [
        ({"x-request-id": "a", "cf-ray": "b"}, "a"),
        ({"request-id": "a"}, "a"),
        ({"apim-request-id": "a"}, "a"),
        ({"x-goog-request-id": "a"}, "a"),
        ({"cf-ray": "a"}, "a"),
        ({"x-request-id": ""}, None),
        ({}, None),
    ],
)
def test_the_request_id_goes_by_many_names(headers: dict[str, str], known_as: str | None) -> None:
    assert request_id(headers) == known_as


def test_the_request_id_in_the_body_counts_more() -> None:
    body = json.encode(anthropic("api_error", "Oh no"))
    raised = error_answer("acme", 500, {"request-id": "other"}, body, NOW)

    assert raised.request_id == "req_011CTWFpbkpKZzpBJezq7xnK"


@pytest.mark.parametrize(
    ("event", "kind", "status"),
    [
        (anthropic("overloaded_error", "Overloaded"), K.OVERLOADED, None),
        (anthropic("api_error", "Oh no"), K.SERVER, None),
        (anthropic("rate_limit_error", "Slow"), K.RATE_LIMIT, None),
        (
            {"type": "error", "code": "server_error", "message": "Oh no", "param": None},
            K.SERVER,
            None,
        ),
        (
            {
                "type": "error",
                "sequence_number": 2,
                "error": {
                    "type": "invalid_request_error",
                    "code": "context_length_exceeded",
                    "message": "Your input exceeds the context window of this model.",
                },
            },
            K.CONTEXT_TOO_LONG,
            None,
        ),
        (
            {"id": "gen-1", "error": {"code": 502, "message": "Provider disconnected"}},
            K.SERVER,
            502,
        ),
        (openrouter(429, "Provider returned error"), K.RATE_LIMIT, 429),
        (google(503, "The model is overloaded.", "UNAVAILABLE"), K.OVERLOADED, 503),
        ({"error": "an error was encountered while running the model"}, K.SERVER, None),
        (
            error("the request exceeds the available context size", code=400),
            K.CONTEXT_TOO_LONG,
            400,
        ),
        ({"type": "error"}, K.SERVER, None),
        ({"error": {"code": 1042, "message": "odd"}}, K.SERVER, None),
    ],
)
def test_error_events_of_real_streams(event: Any, kind: ModelErrorKind, status: int | None) -> None:
    raised = error_event("acme:large", event)

    assert (raised.kind, raised.status) == (kind, status)
    assert raised.retryable is kind.is_retryable
    assert "acme:large" in str(raised)


def test_a_date_that_no_calendar_has_is_no_answer_to_how_long() -> None:
    date = {"retry-after": "Wed, 21 Oct 99999999999 07:28:00 GMT"}

    assert retry_after(date, datetime(2026, 1, 1, tzinfo=UTC)) is None
