"""What pydantic-ai and the SDKs behind it raise becomes a typed error."""

import json

import pytest
from pydantic_ai import exceptions as theirs_errors
from pydantic_ai import messages as theirs
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from stepwell import ModelError, ModelSettings
from stepwell.errors import ErrorType, ModelErrorKind
from stepwell.models.pydantic_ai import PydanticAiModel
from tests.integration.models.pydantic_ai_doubles import Heard, asking, heard, parts_of, streaming


def http_error(status: int, body: object = None, **headers: str) -> Exception:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return theirs_errors.ModelHTTPError(status, "acme-1", body, headers=named)


async def raised_for(error: Exception) -> ModelError:
    async def fail(messages, info):
        raise error

    with pytest.raises(ModelError) as caught:
        await PydanticAiModel(FunctionModel(fail), name="acme").respond(asking())
    assert "acme" in str(caught.value)
    assert caught.value.__cause__ is error
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (http_error(401), ModelErrorKind.AUTHENTICATION),
        (http_error(402), ModelErrorKind.QUOTA),
        (http_error(404), ModelErrorKind.NOT_FOUND),
        (http_error(429), ModelErrorKind.RATE_LIMIT),
        (http_error(500), ModelErrorKind.SERVER),
        (http_error(529), ModelErrorKind.OVERLOADED),
        (http_error(400, {"code": "context_length_exceeded"}), ModelErrorKind.CONTEXT_TOO_LONG),
        (http_error(400, "prompt is too long: 9 tokens"), ModelErrorKind.CONTEXT_TOO_LONG),
        (http_error(400, {"message": "bad field"}), ModelErrorKind.INVALID_REQUEST),
        (
            theirs_errors.ModelHTTPError.for_category(
                theirs_errors.ModelRateLimitError, status_code=400, model_name="m"
            ),
            ModelErrorKind.RATE_LIMIT,
        ),
        (theirs_errors.ModelAuthenticationError("m", "key"), ModelErrorKind.AUTHENTICATION),
        (theirs_errors.ModelOverloadedError("m", "busy"), ModelErrorKind.OVERLOADED),
        (theirs_errors.ModelTimeoutError("m", "late"), ModelErrorKind.TIMEOUT),
        (theirs_errors.ModelRequestTimeout("m", 3.0), ModelErrorKind.TIMEOUT),
        (
            theirs_errors.ModelConnectionError("m", "no way", phase="connect"),
            ModelErrorKind.CONNECT,
        ),
        (
            theirs_errors.ModelConnectionError("m", "cut", phase="read"),
            ModelErrorKind.DISCONNECTED,
        ),
        (theirs_errors.UnexpectedModelBehavior("odd"), ModelErrorKind.MALFORMED_RESPONSE),
        (theirs_errors.ContentFilterError("no"), ModelErrorKind.CONTENT_FILTER),
        (theirs_errors.UserError("not so"), ModelErrorKind.INVALID_REQUEST),
        (TimeoutError("late"), ModelErrorKind.TIMEOUT),
        (ConnectionRefusedError("no"), ModelErrorKind.CONNECT),
        (ConnectionResetError("cut"), ModelErrorKind.DISCONNECTED),
        (json.JSONDecodeError("bad", "x", 0), ModelErrorKind.MALFORMED_RESPONSE),
        (ValueError("no such media type"), ModelErrorKind.INVALID_REQUEST),
        (KeyError("choices"), None),
        (RuntimeError("who knows"), None),
    ],
    ids=lambda value: f"{value!r:.50}",
)
async def test_every_fault_becomes_a_model_error_with_its_kind(error, kind):
    assert (await raised_for(error)).kind is kind


async def test_an_answer_with_an_error_status_keeps_its_facts():
    body = {"error": {"message": "Slow down.", "type": "rate_limit_error"}}
    error = await raised_for(http_error(429, body, retry_after="7", x_request_id="req_9"))

    assert (error.status, error.retry_after, error.request_id) == (429, 7.0, "req_9")
    assert error.provider_text == "Slow down."
    assert (error.error_type, error.retryable) == (ErrorType.RATE_LIMIT, True)


async def test_a_provider_that_says_whether_to_retry_is_believed():
    error = await raised_for(http_error(500, x_should_retry="false"))

    assert error.retryable is False


@pytest.mark.parametrize("package", ["httpx2", "httpx", "openai", "anthropic"])
async def test_errors_of_the_sdks_are_not_let_through(package):
    module = pytest.importorskip(package)
    names = {"openai": "OpenAIError", "anthropic": "AnthropicError"}
    error = getattr(module, names.get(package, "HTTPError"))("it broke")

    assert "it broke" in str(await raised_for(error))


async def test_when_all_models_of_a_fallback_fail_the_hopeful_error_is_told():
    def failing(error):
        def fail(messages, info):
            raise error

        return FunctionModel(fail)

    model = PydanticAiModel(
        FallbackModel(failing(http_error(503, retry_after="4")), failing(http_error(401))),
        name="acme",
    )
    with pytest.raises(ModelError, match="all of its 2 models failed") as caught:
        await model.respond(asking())

    assert (caught.value.kind, caught.value.status) == (ModelErrorKind.OVERLOADED, 503)
    assert (caught.value.retryable, caught.value.retry_after) == (True, 4.0)


async def test_what_failed_fallbacks_were_charged_for_is_kept():
    rejected = FunctionModel(Heard(usage=RequestUsage(input_tokens=100, cost=0.5)))

    def is_not_enough(response: theirs.ModelResponse) -> bool:
        return True

    model = PydanticAiModel(FallbackModel(rejected, fallback_on=is_not_enough))
    with pytest.raises(ModelError) as caught:
        await model.respond(asking())

    assert (caught.value.usage.input_tokens, caught.value.cost) == (100, 0.5)


async def test_another_model_can_not_be_chosen_by_a_setting():
    with pytest.raises(ModelError, match="the model of a PydanticAiModel is fixed"):
        await heard(settings=ModelSettings(model="other"))


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (ValueError("odd event"), ModelErrorKind.MALFORMED_RESPONSE, True),
        (theirs_errors.ContentFilterError("no"), ModelErrorKind.CONTENT_FILTER, False),
        (http_error(400, {"message": "bad field"}), ModelErrorKind.INVALID_REQUEST, False),
    ],
    ids=lambda value: f"{value!r:.30}",
)
async def test_a_request_that_is_being_answered_was_valid(error, kind, retryable):
    with pytest.raises(ModelError) as raised:
        await parts_of(streaming("Hel", error))

    assert (raised.value.kind, raised.value.retryable) == (kind, retryable)
