"""A model that retries a turn on transient errors."""

import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from stepwell.backoff import Backoff
from stepwell.clock import Clock, SystemClock
from stepwell.errors import ModelError, text_of
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
from stepwell.parameters import check_integer, check_kind

T = TypeVar("T")
logger = logging.getLogger("stepwell.models")
DEFAULT_BACKOFF = Backoff()


class RetryingModel:
    """Retries a turn on transient errors, with a delay.

    The delay is that of ``backoff``, or longer if the provider asks for it. There is no retry if
    the run's deadline would come first, or after the first part of a stream. The response, or the
    last error, includes the usage and cost of failed tries.

    In an agent, prefer the error policy, whose retries are visible steps. Use this for turns
    outside of a run, or for hiccups that should not become steps.

    >>> from stepwell.testing import ScriptedModel
    >>> RetryingModel(ScriptedModel(["Hi."], name="small"), max_retries=3).name
    'small'
    """

    retries_itself = True
    """A run does not retry around this model."""

    def __init__(
        self,
        model: Model,
        *,
        max_retries: int = 2,
        backoff: Backoff = DEFAULT_BACKOFF,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        check_model(model, "RetryingModel")
        check_integer(max_retries, "max_retries", least=0)
        check_kind(backoff, "backoff", Backoff)
        self._model = model
        self._max_tries = max_retries + 1
        self._backoff = backoff
        self._clock = clock or SystemClock()
        self._chance = chance

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return name_of(self._model)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """Return the response of the first try that succeeds."""
        answered = await self._try(request, respond)
        return answered.failed.add_costs(answered.value, answered.model)

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Return the parts of the first try that succeeds."""
        return stream_parts(lambda: self._try(request, open_stream))

    async def _try(self, request: ModelRequest, ask: Ask[T]) -> TurnResult[T]:
        failed = FailedTries()
        started = self._clock.monotonic()
        while True:
            now = subtract_seconds(request, self._clock.monotonic() - started)
            try:
                return TurnResult(self.name, await ask(self._model, now), failed)
            except ModelError as error:
                failed = failed.add(self.name, error)
                if self._is_over(failed) and len(failed.tries) == 1:
                    raise
                wait = self._wait(failed)
                left = subtract_seconds(request, self._clock.monotonic() - started).seconds_left
                ending = self._give_up_reason(failed, wait, left)
                if ending is not None:
                    raise failed.last_error(f"{text_of(error)} ({ending})") from error
            self._log(failed, wait)
            await self._clock.sleep(wait)

    def _is_over(self, failed: FailedTries) -> bool:
        return not failed.last.retryable or len(failed.tries) >= self._max_tries

    def _wait(self, failed: FailedTries) -> float:
        wait = self._backoff.delay(len(failed.tries), self._chance())
        return max(wait, failed.last.retry_after or 0.0)

    def _give_up_reason(self, failed: FailedTries, wait: float, left: float | None) -> str | None:
        """Return why there is no further try, or None if there is one."""
        count = len(failed.tries)
        if not failed.last.retryable:
            return f"at try {count} of {self._max_tries}; this error is not retried"
        if count >= self._max_tries:
            return f"gave up after {count} tries"
        if left is not None and wait >= left:
            made = "1 try" if count == 1 else f"{count} tries"
            return (
                f"gave up after {made}: the next would have to wait {wait:.1f} s, and the deadline "
                f"is in {left:.1f} s"
            )
        return None

    def _log(self, failed: FailedTries, wait: float) -> None:
        logger.warning(
            "model %s failed: %s; waiting %.1f s, then try %d of %d",
            self.name,
            text_of(failed.last),
            wait,
            len(failed.tries) + 1,
            self._max_tries,
        )
