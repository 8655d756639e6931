"""A model that asks another when one fails."""

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError, ErrorType, ModelError, ModelErrorKind, text_of
from stepwell.models.attempts import (
    Answered,
    Ask,
    FailedTries,
    begun,
    delivered,
    name_of,
    refuse_what_is_no_model,
    whole,
    with_seconds_spent,
)
from stepwell.models.model import Model
from stepwell.models.request import ModelRequest
from stepwell.models.response import ModelResponse, StreamPart

T = TypeVar("T")
logger = logging.getLogger("stepwell.models")

THE_REQUESTS_FAULT = frozenset(
    {
        ModelErrorKind.REFUSAL,
        ModelErrorKind.CONTENT_FILTER,
        ModelErrorKind.INVALID_REQUEST,
        ModelErrorKind.CONTEXT_TOO_LONG,
    }
)
"""What is wrong with the request and not with the provider: no fallback unless asked for."""


class FallbackModel:
    """Asks the first model, and on an error of a chosen kind the next one.

    ``on`` takes words of ``ModelErrorKind`` and ``ErrorType``; a word that is in both means both,
    and ``"model"`` means everything that is neither a rate limit nor a timeout. Without it every
    error counts that is the provider's fault, also one without a kind: all but refusal,
    content_filter, invalid_request and context_too_long. Once a part of a stream was delivered no
    other model is asked.

    The response says which model gave it, and its usage and cost include what the failed ones
    charged for. A request's ``model``, ``extra_body`` and ``extra_headers`` speak to one provider
    and reach the first model only.

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
            refuse_what_is_no_model(model, "FallbackModel")
        self._models = tuple((name_of(model), model) for model in models)
        self._chosen = _PROVIDERS_FAULTS if on is None else _chosen(on)
        self._clock = clock or SystemClock()

    @property
    def name(self) -> str:
        """The names of all its models."""
        return f"fallback({', '.join(name for name, _ in self._models)})"

    @property
    def retries_itself(self) -> bool:
        """Whether each of its models makes its own retries, so that a run makes none."""
        return all(getattr(model, "retries_itself", False) is True for _, model in self._models)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The answer of the first model that gives one."""
        answered = await self._tried(request, whole)
        return answered.failed.paid_with(answered.value, answered.model)

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The parts of the first model that gives one."""
        return delivered(lambda: self._tried(request, begun))

    async def _tried(self, request: ModelRequest, ask: Ask[T]) -> Answered[T]:
        failed = FailedTries()
        started = self._clock.monotonic()
        for name, model in self._models:
            if failed.tries:
                _log(failed, name)
                request = _for_another_provider(request)
            asked = with_seconds_spent(request, self._clock.monotonic() - started)
            try:
                return Answered(name, await ask(model, asked), failed)
            except ModelError as error:
                failed = failed.and_then(name, error)
                if not self._chosen.includes(error):
                    break
        if len(failed.tries) == 1:
            raise failed.last
        raise self._summed_up(failed) from failed.last

    def _summed_up(self, failed: FailedTries) -> ModelError:
        if not self._chosen.includes(failed.last):
            what = failed.last.kind or failed.last.error_type
            return failed.last_error(f"{failed.told} (no other model is asked on {what})")
        return failed.error(
            f"all {len(failed.tries)} models failed: {failed.told}",
            retryable=_may_help([tried.error.retryable for tried in failed.tries]),
            retry_after=min(
                (t.error.retry_after for t in failed.tries if t.error.retry_after is not None),
                default=None,
            ),
        )


class _Chosen(Struct, frozen=True, kw_only=True):
    kinds: frozenset[ModelErrorKind]
    types: frozenset[ErrorType] = frozenset()
    without_kind: bool = False

    def includes(self, error: ModelError) -> bool:
        is_kind = self.without_kind if error.kind is None else error.kind in self.kinds
        return is_kind or error.error_type in self.types


_PROVIDERS_FAULTS = _Chosen(
    kinds=frozenset(ModelErrorKind) - THE_REQUESTS_FAULT,
    without_kind=True,
)
_KINDS: dict[str, ModelErrorKind] = {kind.value: kind for kind in ModelErrorKind}
_TYPES: dict[str, ErrorType] = {error_type.value: error_type for error_type in ErrorType}


def _chosen(on: Iterable[ModelErrorKind | ErrorType | str]) -> _Chosen:
    words = (on,) if isinstance(on, str) else tuple(on)
    if not words:
        raise ConfigurationError(
            "on=() would never ask a second model; name kinds of errors, or leave it out"
        )
    kinds: set[ModelErrorKind] = set()
    types: set[ErrorType] = set()
    for word in words:
        # A member of one enum means itself, though its text may be a word of both.
        as_kind = None if isinstance(word, ErrorType) else _KINDS.get(word)
        as_type = None if isinstance(word, ModelErrorKind) else _TYPES.get(word)
        if as_kind is None and as_type is None:
            known = ", ".join(sorted({*_KINDS, *_TYPES}))
            raise ConfigurationError(f"unknown kind of error {word!r} in on; known: {known}")
        kinds |= {as_kind} if as_kind else set()
        types |= {as_type} if as_type else set()
    return _Chosen(kinds=frozenset(kinds), types=frozenset(types))


def _may_help(retryable: Sequence[bool | None]) -> bool | None:
    """Whether to ask all of them again: if that may help with one, it may help."""
    if True in retryable:
        return True
    return None if None in retryable else False


def _for_another_provider(request: ModelRequest) -> ModelRequest:
    """Without what only the first provider understands, or should see."""
    settings = replace(request.settings, model=None, extra_body={}, extra_headers={})
    return replace(request, settings=settings)


def _log(failed: FailedTries, next_model: str) -> None:
    logger.warning(
        "model %s failed: %s; asking %s", failed.tries[-1].model, text_of(failed.last), next_model
    )
