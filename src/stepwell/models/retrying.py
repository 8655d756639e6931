"""A model that tries a turn again when the provider stumbles, within the turn."""

import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from stepwell.backoff import Backoff
from stepwell.clock import Clock, SystemClock
from stepwell.errors import ModelError, text_of
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
from stepwell.parameters import check_integer, check_kind

T = TypeVar("T")
logger = logging.getLogger("stepwell.models")
USUAL_BACKOFF = Backoff()


class RetryingModel:
    """Tries the same turn again on errors that may pass, and waits in between.

    It waits as ``backoff`` says, never shorter than the provider asks, and not at all if the
    run's deadline would come first. Once a part of a stream was delivered nothing is tried again.
    Usage and cost of failed tries are added to the response, or to the error that is raised at
    last.

    In an agent the error policy is the usual place for retries, since each is a step that can be
    seen. This is for turns outside of a run, and for hiccups that should not become steps.

    >>> from stepwell.testing import ScriptedModel
    >>> RetryingModel(ScriptedModel(["Hi."], name="small"), max_retries=3).name
    'small'
    """

    retries_itself = True
    """A run makes no retries of its own around this model."""

    def __init__(
        self,
        model: Model,
        *,
        max_retries: int = 2,
        backoff: Backoff = USUAL_BACKOFF,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        refuse_what_is_no_model(model, "RetryingModel")
        check_integer(max_retries, "max_retries", least=0)
        check_kind(backoff, "backoff", Backoff)
        self._model = model
        self._most_tries = max_retries + 1
        self._backoff = backoff
        self._clock = clock or SystemClock()
        self._chance = chance

    @property
    def name(self) -> str:
        """The name of the model that is asked."""
        return name_of(self._model)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The answer of the first try that gives one."""
        answered = await self._tried(request, whole)
        return answered.failed.paid_with(answered.value, answered.model)

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The parts of the first try that gives one."""
        return delivered(lambda: self._tried(request, begun))

    async def _tried(self, request: ModelRequest, ask: Ask[T]) -> Answered[T]:
        failed = FailedTries()
        started = self._clock.monotonic()
        while True:
            now = with_seconds_spent(request, self._clock.monotonic() - started)
            try:
                return Answered(self.name, await ask(self._model, now), failed)
            except ModelError as error:
                failed = failed.and_then(self.name, error)
                if self._is_over(failed) and len(failed.tries) == 1:
                    raise
                wait = self._wait(failed)
                left = with_seconds_spent(request, self._clock.monotonic() - started).seconds_left
                ending = self._ending(failed, wait, left)
                if ending is not None:
                    raise failed.last_error(f"{text_of(error)} ({ending})") from error
            self._log(failed, wait)
            await self._clock.sleep(wait)

    def _is_over(self, failed: FailedTries) -> bool:
        return not failed.last.retryable or len(failed.tries) >= self._most_tries

    def _wait(self, failed: FailedTries) -> float:
        wait = self._backoff.delay(len(failed.tries), self._chance())
        return max(wait, failed.last.retry_after or 0.0)

    def _ending(self, failed: FailedTries, wait: float, left: float | None) -> str | None:
        """Why there is no next try, if there is none."""
        count = len(failed.tries)
        if not failed.last.retryable:
            return f"at try {count} of {self._most_tries}; this is not tried again"
        if count >= self._most_tries:
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
            self._most_tries,
        )
