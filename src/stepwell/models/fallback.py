"""A model that falls back to other models when one fails."""

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError, ErrorType, ModelError, ModelErrorKind, text_of
from stepwell.models.attempts import (
    Ask,
    FailedTries,
    TurnResult,
    check_model,
    name_of,
    open_stream,
    respond,
    stream_parts,
    subtract_seconds,
)
from stepwell.models.model import Model
from stepwell.models.request import ModelRequest
from stepwell.models.response import ModelResponse, StreamPart

T = TypeVar("T")
logger = logging.getLogger("stepwell.models")

REQUEST_FAULTS = frozenset(
    {
        ModelErrorKind.REFUSAL,
        ModelErrorKind.CONTENT_FILTER,
        ModelErrorKind.INVALID_REQUEST,
        ModelErrorKind.CONTEXT_TOO_LONG,
    }
)
"""Errors of the request, not of the provider. They cause no fallback unless ``on`` names them."""


class FallbackModel:
    """Calls the first model, and on certain errors the next one.

    ``on`` takes values of ``ModelErrorKind`` and ``ErrorType``. A value of both means both, and
    ``"model"`` means everything but rate limits and timeouts. By default every error of the
    provider counts, also one without a kind: all but refusal, content_filter, invalid_request and
    context_too_long. After the first part of a stream there is no fallback.

    The response names its model, and its usage and cost include those of the models that failed.
    A request's ``model``, ``extra_body`` and ``extra_headers`` are meant for one provider and go
    to the first model only.

    >>> from stepwell.testing import ScriptedModel
    >>> first, second = ScriptedModel(["Hi."], name="big"), ScriptedModel(["Hi."], name="small")
    >>> FallbackModel(first, second, on=("rate_limit", "connect")).name
    'fallback(big, small)'
    """

    def __init__(
        self,
        *models: Model,
        on: Iterable[ModelErrorKind | ErrorType | str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not models:
            raise ConfigurationError("FallbackModel needs at least one model")
        for model in models:
            check_model(model, "FallbackModel")
        self._models = tuple((name_of(model), model) for model in models)
        self._filter = _PROVIDER_FAULTS if on is None else _parse_kinds(on)
        self._clock = clock or SystemClock()

    @property
    def name(self) -> str:
        """The names of all its models."""
        return f"fallback({', '.join(name for name, _ in self._models)})"

    @property
    def retries_itself(self) -> bool:
        """Whether all of its models retry by themselves, so that a run does not."""
        return all(getattr(model, "retries_itself", False) is True for _, model in self._models)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """Return the first response of a model."""
        answered = await self._try(request, respond)
        return answered.failed.add_costs(answered.value, answered.model)

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Return the parts of the first model that responds."""
        return stream_parts(lambda: self._try(request, open_stream))

    async def _try(self, request: ModelRequest, ask: Ask[T]) -> TurnResult[T]:
        failed = FailedTries()
        started = self._clock.monotonic()
        for name, model in self._models:
            if failed.tries:
                _log(failed, name)
                request = _drop_provider_settings(request)
            asked = subtract_seconds(request, self._clock.monotonic() - started)
            try:
                return TurnResult(name, await ask(model, asked), failed)
            except ModelError as error:
                failed = failed.add(name, error)
                if not self._filter.includes(error):
                    break
        if len(failed.tries) == 1:
            raise failed.last
        raise self._sum_up(failed) from failed.last

    def _sum_up(self, failed: FailedTries) -> ModelError:
        if not self._filter.includes(failed.last):
            what = failed.last.kind or failed.last.error_type
            return failed.last_error(f"{failed.summary} (no fallback on {what})")
        return failed.error(
            f"all {len(failed.tries)} models failed: {failed.summary}",
            retryable=_any_retryable([tried.error.retryable for tried in failed.tries]),
            retry_after=min(
                (t.error.retry_after for t in failed.tries if t.error.retry_after is not None),
                default=None,
            ),
        )


class _ErrorFilter(Struct, frozen=True, kw_only=True):
    kinds: frozenset[ModelErrorKind]
    types: frozenset[ErrorType] = frozenset()
    without_kind: bool = False

    def includes(self, error: ModelError) -> bool:
        is_kind = self.without_kind if error.kind is None else error.kind in self.kinds
        return is_kind or error.error_type in self.types


_PROVIDER_FAULTS = _ErrorFilter(
    kinds=frozenset(ModelErrorKind) - REQUEST_FAULTS,
    without_kind=True,
)
_KINDS: dict[str, ModelErrorKind] = {kind.value: kind for kind in ModelErrorKind}
_TYPES: dict[str, ErrorType] = {error_type.value: error_type for error_type in ErrorType}


def _parse_kinds(on: Iterable[ModelErrorKind | ErrorType | str]) -> _ErrorFilter:
    words = (on,) if isinstance(on, str) else tuple(on)
    if not words:
        raise ConfigurationError(
            "on=() would never fall back; name kinds of errors, or leave it out"
        )
    kinds: set[ModelErrorKind] = set()
    types: set[ErrorType] = set()
    for word in words:
        # A member of one enum means itself, though its value may be in both.
        as_kind = None if isinstance(word, ErrorType) else _KINDS.get(word)
        as_type = None if isinstance(word, ModelErrorKind) else _TYPES.get(word)
        if as_kind is None and as_type is None:
            known = ", ".join(sorted({*_KINDS, *_TYPES}))
            raise ConfigurationError(f"Unknown kind of error {word!r} in on. Known kinds: {known}")
        kinds |= {as_kind} if as_kind else set()
        types |= {as_type} if as_type else set()
    return _ErrorFilter(kinds=frozenset(kinds), types=frozenset(types))


def _any_retryable(retryable: Sequence[bool | None]) -> bool | None:
    """Return True if a retry may help with one of them, None if that is unknown."""
    if True in retryable:
        return True
    return None if None in retryable else False


def _drop_provider_settings(request: ModelRequest) -> ModelRequest:
    """Remove the settings that are meant for the first provider only."""
    settings = replace(request.settings, model=None, extra_body={}, extra_headers={})
    return replace(request, settings=settings)


def _log(failed: FailedTries, next_model: str) -> None:
    logger.warning(
        "model %s failed: %s; falling back to %s",
        failed.tries[-1].model,
        text_of(failed.last),
        next_model,
    )
