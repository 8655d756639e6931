"""Retries of one model turn in a run, as the providers' own clients do them.

Called by everything that calls a model in a run: drivers for steps, tools and hooks for side
questions. Only a turn that failed before any output is retried; then the error policy decides.
"""

import logging
import random
from collections.abc import Awaitable, Callable

from stepwell.backoff import Backoff
from stepwell.continuation import AgentStop
from stepwell.errors import ErrorType, ModelError, ModelErrorKind, text_of
from stepwell.events import InferenceRetryScheduled
from stepwell.models.attempts import FailedTries
from stepwell.models.response import ModelResponse
from stepwell.scope import RunScope

logger = logging.getLogger("stepwell.models")

LONGEST_WAIT = 60.0
"""Seconds. If a provider asks to wait longer, the error policy decides."""
BACKOFF = Backoff(initial=0.5, maximum=8.0)
_STATUSES = frozenset({429, 503, 529})
_KINDS = frozenset(
    {
        ModelErrorKind.CONNECT,
        ModelErrorKind.DISCONNECTED,
        ModelErrorKind.INCOMPLETE_STREAM,
        ModelErrorKind.OVERLOADED,
        ModelErrorKind.RATE_LIMIT,
        ModelErrorKind.TIMEOUT,
    }
)


def should_retry(error: ModelError) -> bool:
    """Return whether a turn that failed with this error, before any output, is retried.

    >>> (
    ...     should_retry(ModelError("429", kind="rate_limit")),
    ...     should_retry(ModelError("no credit", kind="quota")),
    ... )
    (True, False)
    """
    if error.kind is not None or error.retryable is False:
        return error.kind in _KINDS and error.retryable is not False
    return error.status in _STATUSES or error.error_type in (
        ErrorType.RATE_LIMIT,
        ErrorType.TIMEOUT,
    )


class TurnRetries:
    """The attempts of one turn. Each calls ``ask`` with the seconds that are left."""

    def __init__(
        self,
        model: str,
        scope: RunScope,
        *,
        max_retries: int,
        step_number: int,
        inference_id: str | None = None,
        within: float | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._model = model
        self._scope = scope
        self._max_attempts = max_retries + 1
        self._step_number = step_number
        self._inference_id = inference_id
        self._chance = chance
        self._end = None if within is None else scope.clock.monotonic() + within
        self.is_final = False
        """Set by ``ask`` to prevent retries: a part of the response has arrived, or the caller's
        own timeout is over."""

    async def run(self, ask: Callable[[float | None], Awaitable[ModelResponse]]) -> ModelResponse:
        """Return the first response, with the usage and cost of failed attempts. Raises the last
        ``ModelError``, which says how many attempts there were, or ``AgentStop`` if the run ends
        during a wait."""
        failed = FailedTries()
        while True:
            try:
                response = await ask(self._seconds_left)
            except ModelError as error:
                failed = failed.add(self._model, error)
                delay = self._delay(failed)
                ending = self._give_up_reason(failed, delay)
                if ending is None:
                    await self._wait(failed, delay)
                    continue
                if len(failed.tries) == 1 and not ending:
                    raise
                text = f"{text_of(error)} ({ending})" if ending else text_of(error)
                raise failed.last_error(text) from error
            return failed.add_costs(response, self._model) if failed.tries else response

    @property
    def _seconds_left(self) -> float | None:
        ends = [] if self._end is None else [self._end - self._scope.clock.monotonic()]
        left = self._scope.seconds_left
        return min([*ends, *([] if left is None else [left])], default=None)

    def _delay(self, failed: FailedTries) -> float:
        asked = failed.last.retry_after
        return BACKOFF.delay(len(failed.tries), self._chance()) if asked is None else float(asked)

    def _give_up_reason(self, failed: FailedTries, delay: float) -> str | None:
        """Return why there is no further attempt (possibly an empty text), or None if there is
        one."""
        count = len(failed.tries)
        made = "1 attempt" if count == 1 else f"{count} attempts"
        if self.is_final or not should_retry(failed.last) or self._max_attempts == 1:
            return "" if count == 1 else f"after {made}"
        if count >= self._max_attempts:
            return f"gave up after {made}"
        if delay > LONGEST_WAIT:
            return f"gave up after {made}: it asks to wait longer than {LONGEST_WAIT:g} s"
        left = self._seconds_left
        if left is not None and delay >= left:
            return (
                f"gave up after {made}: the next would have to wait {delay:.1f} s, and the "
                f"deadline is in {max(left, 0.0):.1f} s"
            )
        return None

    async def _wait(self, failed: FailedTries, delay: float) -> None:
        attempt, error = len(failed.tries) + 1, failed.last
        logger.warning(
            "model %s failed: %s; waiting %.1f s, then attempt %d of %d",
            self._model,
            text_of(error),
            delay,
            attempt,
            self._max_attempts,
        )
        self._scope.emitter.emit(
            InferenceRetryScheduled,
            inference_id=self._inference_id,
            step_number=self._step_number,
            model=self._model,
            attempt=attempt,
            max_attempts=self._max_attempts,
            delay_seconds=delay,
            error=text_of(error),
            error_kind=None if error.kind is None else str(error.kind),
        )
        with self._scope.guard() as guard:
            await self._scope.clock.sleep(delay)
        if guard.signal is not None:
            waits_for = f"the wait before attempt {attempt} at {self._model}"
            raise AgentStop(guard.signal.while_running(waits_for))


def retries_itself(model: object) -> bool:
    """Whether a model makes its own retries, as ``RetryingModel`` does; then a run makes none."""
    return getattr(model, "retries_itself", False) is True
