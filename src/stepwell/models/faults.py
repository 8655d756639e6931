"""What a provider says when it fails, classified: error answers, error events in streams, and how
long it asks to wait. Only pure functions.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

from msgspec import Struct, json

from stepwell.errors import ModelError, ModelErrorKind

MAX_TEXT_LENGTH = 1000
_FILTER = ModelErrorKind.CONTENT_FILTER

_BY_STATUS = {
    401: ModelErrorKind.AUTHENTICATION,
    402: ModelErrorKind.QUOTA,
    403: ModelErrorKind.AUTHENTICATION,
    404: ModelErrorKind.NOT_FOUND,
    408: ModelErrorKind.TIMEOUT,
    409: ModelErrorKind.SERVER,
    413: ModelErrorKind.CONTEXT_TOO_LONG,
    429: ModelErrorKind.RATE_LIMIT,
    501: ModelErrorKind.INVALID_REQUEST,
    503: ModelErrorKind.OVERLOADED,
    504: ModelErrorKind.TIMEOUT,
    524: ModelErrorKind.TIMEOUT,
    529: ModelErrorKind.OVERLOADED,
}

_BY_WORD = {
    "insufficient_quota": ModelErrorKind.QUOTA,
    "billing_error": ModelErrorKind.QUOTA,
    "billing_not_active": ModelErrorKind.QUOTA,
    "context_length_exceeded": ModelErrorKind.CONTEXT_TOO_LONG,
    "request_too_large": ModelErrorKind.CONTEXT_TOO_LONG,
    "exceed_context_size_error": ModelErrorKind.CONTEXT_TOO_LONG,
    "content_filter": ModelErrorKind.CONTENT_FILTER,
    "content_policy_violation": ModelErrorKind.CONTENT_FILTER,
    "invalid_prompt": ModelErrorKind.CONTENT_FILTER,
    "tool_use_failed": ModelErrorKind.MALFORMED_RESPONSE,
    "json_validate_failed": ModelErrorKind.MALFORMED_RESPONSE,
    "invalid_api_key": ModelErrorKind.AUTHENTICATION,
    "api_key_invalid": ModelErrorKind.AUTHENTICATION,
    "authentication_error": ModelErrorKind.AUTHENTICATION,
    "permission_error": ModelErrorKind.AUTHENTICATION,
    "permission_denied": ModelErrorKind.AUTHENTICATION,
    "unauthenticated": ModelErrorKind.AUTHENTICATION,
    "model_not_found": ModelErrorKind.NOT_FOUND,
    "not_found_error": ModelErrorKind.NOT_FOUND,
    "not_found": ModelErrorKind.NOT_FOUND,
    "rate_limit_error": ModelErrorKind.RATE_LIMIT,
    "rate_limit_exceeded": ModelErrorKind.RATE_LIMIT,
    "resource_exhausted": ModelErrorKind.RATE_LIMIT,
    "too_many_requests": ModelErrorKind.RATE_LIMIT,
    "overloaded_error": ModelErrorKind.OVERLOADED,
    "capacity_exceeded": ModelErrorKind.OVERLOADED,
    "unavailable": ModelErrorKind.OVERLOADED,
    "timeout_error": ModelErrorKind.TIMEOUT,
    "deadline_exceeded": ModelErrorKind.TIMEOUT,
    "server_error": ModelErrorKind.SERVER,
    "api_error": ModelErrorKind.SERVER,
    "internal": ModelErrorKind.SERVER,
    "internal_server_error": ModelErrorKind.SERVER,
    "invalid_request_error": ModelErrorKind.INVALID_REQUEST,
    "invalid_argument": ModelErrorKind.INVALID_REQUEST,
}

# Some providers report only "invalid request" and give the reason in the text.
_BY_TEXT = (
    (
        re.compile(
            r"context (length|window|size|limit)|maximum context|prompt is too long|too many tokens"
            r"|input token count|input is too long|exceeds? the maximum number of tokens"
            r"|reduce the length",
            re.IGNORECASE,
        ),
        ModelErrorKind.CONTEXT_TOO_LONG,
    ),
    (re.compile(r"api key (not valid|expired)", re.IGNORECASE), ModelErrorKind.AUTHENTICATION),
    (re.compile(r"credit balance", re.IGNORECASE), ModelErrorKind.QUOTA),
    (
        re.compile(r"content.?filter|content.?(management.)?policy|was flagged", re.IGNORECASE),
        _FILTER,
    ),
)
_NEVER_FITS = re.compile(r"request too large for", re.IGNORECASE)
"""A request that exceeds the whole rate limit, so waiting does not help."""


class Complaint(Struct, frozen=True, kw_only=True):
    """What a provider reported about a failure, whatever its shape."""

    text: str = ""
    words: tuple[str, ...] = ()
    status: int | None = None
    retry_after: float | None = None
    request_id: str | None = None


def complaint_of(data: Any) -> Complaint:
    """Parse the decoded body of an error response, or an error event."""
    if isinstance(data, list) and data:
        data = cast("list[Any]", data)[0]
    if not isinstance(data, Mapping):
        return Complaint(text=str(cast("Any", data)) if data else "")
    outer = cast("Mapping[str, Any]", data)
    inner = outer.get("error")
    if isinstance(inner, str):
        return Complaint(text=inner, words=_words(outer))
    error = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else outer
    text = error.get("message") or error.get("detail") or outer.get("detail") or error
    code = error.get("code")
    return Complaint(
        text=_as_text(text) + _upstream(error.get("metadata")),
        words=_words(error),
        status=code if isinstance(code, int) and 400 <= code <= 599 else None,
        retry_after=_retry_delay(error.get("details")),
        request_id=outer.get("request_id") if isinstance(outer.get("request_id"), str) else None,
    )


def error_answer(
    owner: str, status: int, headers: Mapping[str, str], body: bytes, now: datetime
) -> ModelError:
    """Return the error for a response with an error status."""
    try:
        complaint = complaint_of(json.decode(body))
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deep
        complaint = Complaint(text=" ".join(body[:4000].decode("utf-8", "replace").split()))
    if 300 <= status < 400:
        text = (
            f"a redirect to {headers.get('location', '(nowhere)')}. Redirects are not followed, so "
            "that the key goes only to the configured host; set base_url to the new address"
        )
        return _error(owner, ModelErrorKind.INVALID_REQUEST, Complaint(text=text), status, headers)
    wait = retry_after(headers, now)
    return _error(
        owner,
        _kind(complaint, status),
        complaint,
        status,
        headers,
        complaint.retry_after if wait is None else wait,
    )


def error_event(owner: str, data: Any) -> ModelError:
    """Return the error for an error event in a stream."""
    complaint = complaint_of(data)
    kind = _kind(complaint, complaint.status)
    return _error(owner, kind, complaint, complaint.status, {}, complaint.retry_after)


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id of the request."""
    names = ("x-request-id", "request-id", "apim-request-id", "x-goog-request-id", "cf-ray")
    return next((headers[name] for name in names if headers.get(name)), None)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return how many seconds the provider asks to wait, from seconds, milliseconds or a date.

    >>> retry_after({"retry-after": "1.5"}, datetime(2026, 1, 1, tzinfo=UTC))
    1.5
    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> retry_after({"retry-after": "Thu, 01 Jan 2026 00:00:30 GMT"}, at)
    30.0
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after")
    seconds = _number(given)
    if seconds is not None or given is None:
        return seconds
    try:
        date = parsedate_to_datetime(given)
    except (ValueError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max((date - now).total_seconds(), 0.0)


def _kind(complaint: Complaint, status: int | None) -> ModelErrorKind:
    kind = next((_BY_WORD[word] for word in complaint.words if word in _BY_WORD), None)
    is_general = kind in (None, ModelErrorKind.INVALID_REQUEST, ModelErrorKind.SERVER)
    if status is not None and is_general:  # the status is more specific than a general code
        of_class = ModelErrorKind.INVALID_REQUEST if status < 500 else ModelErrorKind.SERVER
        kind = _BY_STATUS.get(status, of_class)
    if kind is None:
        kind = ModelErrorKind.SERVER
    if kind is ModelErrorKind.RATE_LIMIT and _NEVER_FITS.search(complaint.text):
        return ModelErrorKind.CONTEXT_TOO_LONG
    if kind is ModelErrorKind.INVALID_REQUEST or status == 403:
        return next((k for pattern, k in _BY_TEXT if pattern.search(complaint.text)), kind)
    return kind


def _error(
    owner: str,
    kind: ModelErrorKind,
    complaint: Complaint,
    status: int | None,
    headers: Mapping[str, str],
    wait: float | None = None,
) -> ModelError:
    text = complaint.text[:MAX_TEXT_LENGTH]
    known_as = complaint.request_id or request_id(headers)
    said = f"{owner} answered {status}" if status else f"{owner} failed during its response"
    notes = [
        f"it asks to wait {wait:g} seconds" if wait is not None else "",
        f"request {known_as}" if known_as else "",
    ]
    behind = "; ".join(note for note in notes if note)
    return ModelError(
        f"{said} ({kind}): {text or '(no text)'}" + (f" [{behind}]" if behind else ""),
        kind=kind,
        status=status,
        request_id=known_as,
        provider_text=text,
        retry_after=wait,
    )


def _as_text(said: Any) -> str:
    if isinstance(said, str):
        return said
    return json.encode(said).decode() if said else ""


def _upstream(metadata: Any) -> str:
    """Return what a router reports from the provider behind it."""
    if not isinstance(metadata, Mapping):
        return ""
    raw = _as_text(cast("Mapping[str, Any]", metadata).get("raw"))
    return f": {raw}" if raw else ""


def _words(error: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the error's codes, the most specific first."""
    reasons = [
        cast("Mapping[str, Any]", detail).get("reason")
        for detail in _as_list(error.get("details"))
        if isinstance(detail, Mapping)
    ]
    named = (*reasons, error.get("code"), error.get("type"), error.get("status"))
    return tuple(word.lower() for word in named if isinstance(word, str))


def _retry_delay(details: Any) -> float | None:
    """Return Google's ``retryDelay``, such as ``"34.5s"``, in seconds."""
    for detail in _as_list(details):
        if isinstance(detail, Mapping):
            delay = cast("Mapping[str, Any]", detail).get("retryDelay")
            if isinstance(delay, str):
                return _number(delay.removesuffix("s"))
    return None


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) and number >= 0 else None
