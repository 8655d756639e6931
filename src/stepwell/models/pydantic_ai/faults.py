"""Maps exceptions of pydantic-ai, its SDKs and the network to ``ModelError``. Imported with
pydantic-ai on the first turn.
"""

import sys
from collections.abc import Mapping
from typing import Any, cast

from msgspec import json
from pydantic_ai.exceptions import FallbackExceptionGroup

from stepwell.clock import SystemClock
from stepwell.errors import ModelError, ModelErrorKind, describe
from stepwell.models.faults import MAX_TEXT_LENGTH, error_answer, request_id
from stepwell.models.pydantic_ai.responses import Spending, spending_of_attempt

_PYTHON = (
    *(RuntimeError, ValueError, OSError, ExceptionGroup),
    *(LookupError, TypeError, AttributeError, AssertionError, Warning),
)
"""The bases of pydantic-ai's errors, what its adapters raise for undocumented response shapes, and
warnings where they are errors."""

_SDKS = (
    *(("httpx2", "HTTPError"), ("httpx2", "StreamError"), ("httpx2", "InvalidURL")),
    *(("httpx", "HTTPError"), ("httpx", "StreamError"), ("httpx", "InvalidURL")),
    *(("openai", "OpenAIError"), ("anthropic", "AnthropicError"), ("groq", "GroqError")),
    *(("botocore.exceptions", "BotoCoreError"), ("botocore.exceptions", "ClientError")),
    *(("google.genai.errors", "APIError"), ("google.auth.exceptions", "GoogleAuthError")),
    *(("cohere.core.api_error", "ApiError"), ("grpc", "RpcError")),
)
"""The base exceptions of the SDKs. pydantic-ai maps most of what they raise, but not all."""

# By name, since most of these packages are not installed and older versions lack some errors. The
# names of an error's bases are looked up too, nearest first.
_KINDS = {
    "ModelRateLimitError": ModelErrorKind.RATE_LIMIT,
    "ModelQuotaExceededError": ModelErrorKind.QUOTA,
    "ModelUnavailableError": ModelErrorKind.OVERLOADED,
    "ModelServerError": ModelErrorKind.SERVER,
    "ModelContextWindowExceededError": ModelErrorKind.CONTEXT_TOO_LONG,
    "ModelAuthenticationError": ModelErrorKind.AUTHENTICATION,
    "ModelNotFoundError": ModelErrorKind.NOT_FOUND,
    "ModelRequestRejectedError": ModelErrorKind.INVALID_REQUEST,
    "ModelTimeoutError": ModelErrorKind.TIMEOUT,
    "ModelRequestTimeout": ModelErrorKind.TIMEOUT,
    "ModelConnectionError": ModelErrorKind.DISCONNECTED,
    "ConcurrencyLimitExceeded": ModelErrorKind.OVERLOADED,
    "ContentFilterError": ModelErrorKind.CONTENT_FILTER,
    "UnexpectedModelBehavior": ModelErrorKind.MALFORMED_RESPONSE,
    "UserError": ModelErrorKind.INVALID_REQUEST,
    "APITimeoutError": ModelErrorKind.TIMEOUT,
    "APIConnectionError": ModelErrorKind.CONNECT,
    "TimeoutException": ModelErrorKind.TIMEOUT,
    "TimeoutError": ModelErrorKind.TIMEOUT,
    "ConnectError": ModelErrorKind.CONNECT,
    "ConnectionRefusedError": ModelErrorKind.CONNECT,
    "gaierror": ModelErrorKind.CONNECT,
    "TransportError": ModelErrorKind.DISCONNECTED,
    "ConnectionError": ModelErrorKind.DISCONNECTED,
    "NoCredentialsError": ModelErrorKind.AUTHENTICATION,
    "GoogleAuthError": ModelErrorKind.AUTHENTICATION,
    "HTTPClientError": ModelErrorKind.DISCONNECTED,
    "JSONDecodeError": ModelErrorKind.MALFORMED_RESPONSE,
    "ValidationError": ModelErrorKind.MALFORMED_RESPONSE,
    "ValueError": ModelErrorKind.INVALID_REQUEST,
}


def faults() -> tuple[type[Exception], ...]:
    """Return the exceptions that a turn may raise. SDKs that are not loaded raise nothing."""
    found = [getattr(sys.modules.get(module), name, None) for module, name in _SDKS]
    return (*_PYTHON, *[kind for kind in found if kind is not None])


def as_model_error(name: str, error: Exception, spent: Spending | None = None) -> ModelError:
    """Convert an exception to a ``ModelError``, with usage and cost."""
    if isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        ours, spent = _error_from_group(name, group), _total_spending(group, spent)
    elif isinstance(getattr(error, "status_code", None), int):
        ours = _error_from_answer(name, error)
    else:
        ours = _error_without_status(name, error)
    if spent is not None and spent.usage:
        ours.usage, ours.cost = spent.usage, spent.cost
    return ours


def _error_from_answer(name: str, error: Exception) -> ModelError:
    """Classify an error status as for our own providers. If the result is general, prefer
    pydantic-ai's class, which knows the codes of more providers."""
    facts: Any = error
    headers: Mapping[str, str] = getattr(facts, "headers", None) or {}
    ours = error_answer(name, facts.status_code, headers, _body(facts), SystemClock().now())
    named = _named_kind(error)
    is_general = ours.kind in (ModelErrorKind.INVALID_REQUEST, ModelErrorKind.SERVER)
    return ModelError(
        str(ours),
        kind=named if named and is_general else ours.kind,
        retryable=getattr(facts, "provider_retry_hint", None),
        retry_after=getattr(facts, "retry_after", None) or ours.retry_after,
        status=ours.status,
        request_id=request_id(headers),
        provider_text=ours.provider_text,
    )


def _error_without_status(name: str, error: Exception) -> ModelError:
    body = getattr(error, "body", None)
    return ModelError(
        f"{name}: {describe(error)}",
        kind=_kind(error),
        retry_after=getattr(error, "retry_after", None),
        provider_text=_text(body) if body else None,
    )


def _error_from_group(name: str, group: "ExceptionGroup[Exception]") -> ModelError:
    """Convert the errors of a fallback. It is retryable if one of them is."""
    every = [as_model_error(name, error) for error in group.exceptions]
    chosen = next((error for error in every if error.retryable), every[-1])
    texts = "; ".join(dict.fromkeys(str(error) for error in every))
    return ModelError(
        f"{name}: all of its {len(every)} models failed: {texts}",
        kind=chosen.kind,
        retryable=chosen.retryable,
        retry_after=chosen.retry_after,
        status=chosen.status,
        request_id=chosen.request_id,
        provider_text=chosen.provider_text,
    )


def _total_spending(group: "ExceptionGroup[Exception]", spent: Spending | None) -> Spending:
    total = spent or Spending()
    if isinstance(group, FallbackExceptionGroup):
        for attempt in group.attempts:
            total += spending_of_attempt(attempt)
    return total


def _kind(error: Exception) -> ModelErrorKind | None:
    kind = _named_kind(error)
    if kind is ModelErrorKind.DISCONNECTED and getattr(error, "phase", None) in ("connect", "pool"):
        return ModelErrorKind.CONNECT
    return kind


def _named_kind(error: BaseException) -> ModelErrorKind | None:
    names = (base.__name__ for base in type(error).__mro__)
    kind = next((_KINDS[name] for name in names if name in _KINDS), None)
    if kind is None and error.__cause__ is not None:
        return _named_kind(error.__cause__)
    return kind


def _body(error: Any) -> bytes:
    body = getattr(error, "body", None)
    return b"" if body is None else _text(body).encode("utf-8", "replace")


def _text(body: Any) -> str:
    if isinstance(body, str):
        return body[:MAX_TEXT_LENGTH]
    try:
        return json.encode(body).decode()
    except (TypeError, ValueError):
        return str(body)[:MAX_TEXT_LENGTH]
