"""The criterion that stops a model which makes the same call again and again."""

from collections.abc import Callable

from stepwell.continuation import ContinuationDecision, ContinuationEvaluation, StopReason
from stepwell.errors import ConfigurationError
from stepwell.state import AgentState
from stepwell.state.repeated_calls import RepeatedCalls, repeats_in_newest_step

_QUIET = ContinuationEvaluation(
    criterion="RepeatedCallCheck",
    decision=ContinuationDecision.ALLOW,
    reason="no call was repeated",
    context={"repeats": 0},
)


class RepeatedCallCheck:
    """Stops at the Nth identical call in a row that had an identical result.

    A call that failed or waited for a person, another call, and a message of the user reset
    the count. ``counts`` says of a tool's name whether its calls are looked at; agents look at
    tools with external effects whose arguments are not secret.

    >>> RepeatedCallCheck(8).evaluate(AgentState.empty()).reason
    'no call was repeated'
    """

    def __init__(
        self,
        stop_at: int = RepeatedCalls().stop_at or 8,
        *,
        counts: Callable[[str], bool] = lambda _: True,
    ) -> None:
        if RepeatedCalls(stop_at=stop_at).stop_at is None:
            raise ConfigurationError("RepeatedCallCheck wants a number; leave it out for no check")
        self._stop_at = stop_at
        self._counts = counts

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """Forbid once the newest step holds the Nth call in a row."""
        count, execution = repeats_in_newest_step(state, self._stop_at)
        if execution is None or not self._counts(execution.call.name):
            return _QUIET
        stops, name = count >= self._stop_at, execution.call.name
        return ContinuationEvaluation(
            criterion="RepeatedCallCheck",
            decision=ContinuationDecision.FORBID if stops else ContinuationDecision.ALLOW,
            reason=f"{name} called {count} times in a row, same arguments and result",
            context={"tool": name, "repeats": count, "stop_at": self._stop_at},
            stop_reason=StopReason.GUARD if stops else None,
            hint="let the tool's result say what was done, or mark a tool that only reads as "
            "effect='pure'; raise the number with Agent(repeated_calls=RepeatedCalls(stop_at=n)), "
            "or switch the check off with repeated_calls=None."
            if stops
            else None,
        )
