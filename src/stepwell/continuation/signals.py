"""Requests to stop or to go on that come from hooks, tools, drivers and cancellers.

They enter the same trace as the criteria's votes, as evaluations of their own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import force_setattr, replace

from stepwell.continuation.decisions import ContinuationDecision, StopReason
from stepwell.continuation.outcome import ContinuationEvaluation
from stepwell.errors import ConfigurationError, StepwellError


class StopSignal(Struct, frozen=True, kw_only=True):
    """A request to end the run, with its reason, text and source.

    >>> StopSignal.user_requested().reason
    <StopReason.USER_REQUESTED: 'user_requested'>
    """

    reason: StopReason
    message: str = ""
    context: Mapping[str, Any] = {}
    source: str = ""

    def __post_init__(self) -> None:
        if type(self.reason) is not StopReason:
            force_setattr(self, "reason", _stop_reason(self.reason))

    @classmethod
    def user_requested(cls, message: str = "", *, source: str = "user") -> "StopSignal":
        """A person, or the code that speaks for one, cancels the run."""
        return cls(reason=StopReason.USER_REQUESTED, message=message, source=source)

    @property
    def name(self) -> str:
        """Who asked, for the trace."""
        return self.source or "StopSignal"

    @property
    def words(self) -> str:
        """Its message, or at least its reason."""
        return self.message or str(self.reason)

    def while_running(self, what: str) -> "StopSignal":
        """The same signal, telling also what it cut off."""
        return replace(self, message=f"{self.words}; {what} was running and was cancelled")

    def as_evaluation(self) -> ContinuationEvaluation:
        """This signal as a vote."""
        return ContinuationEvaluation(
            criterion=self.name,
            decision=ContinuationDecision.FORBID,
            reason=self.message or f"{self.name} signalled {self.reason}",
            context=self.context,
            stop_reason=self.reason,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return to_builtins(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "StopSignal":
        """The signal that ``to_dict`` described."""
        return convert(data, cls)


class ContinueRequest(Struct, frozen=True, kw_only=True):
    """A request for one more step. It consumes the stop signals whose sources it names.

    It never consumes an error, a cancellation or a hard limit.
    """

    source: str
    message: str = ""
    consumes: tuple[str, ...] = ()

    def overrules(self, signal: StopSignal) -> bool:
        """Whether this request takes that signal out of the vote."""
        return signal.reason.can_be_overruled and signal.name in self.consumes

    def as_evaluation(self) -> ContinuationEvaluation:
        """This request as a vote."""
        return ContinuationEvaluation(
            criterion=self.source,
            decision=ContinuationDecision.REQUEST,
            reason=self.message or f"{self.source} asks for one more step",
        )


def votes_of(
    signals: Iterable[StopSignal], requests: Iterable[ContinueRequest]
) -> list[ContinuationEvaluation]:
    """Signals and requests as votes; a consumed signal stays visible as one that allows."""
    requests = tuple(requests)
    votes = [_signal_vote(signal, requests) for signal in signals]
    votes.extend(request.as_evaluation() for request in requests)
    return votes


def _signal_vote(
    signal: StopSignal, requests: tuple[ContinueRequest, ...]
) -> ContinuationEvaluation:
    overruled_by = next((request for request in requests if request.overrules(signal)), None)
    if overruled_by is None:
        return signal.as_evaluation()
    return ContinuationEvaluation(
        criterion=signal.name,
        decision=ContinuationDecision.ALLOW,
        reason=f"the signal {signal.reason} was consumed by {overruled_by.source}",
        context=signal.context,
    )


def _stop_reason(word: str) -> StopReason:
    try:
        return StopReason(word)
    except ValueError:
        raise ConfigurationError(
            f"{word!r} is not a stop reason; known: {', '.join(StopReason)}"
        ) from None


class AgentStop(StepwellError):
    """Raised by a tool, hook or driver to end the run with a reason; it is not an error.

    ``AgentStop("all done")`` asks to stop with that message; ``AgentStop("guard", "too hot")``
    gives one of the stop reasons as well.
    A driver that has made progress worth keeping gives the state that holds it.
    """

    def __init__(
        self,
        reason: StopReason | str | StopSignal = StopReason.STOP_REQUESTED,
        message: str = "",
        *,
        source: str = "",
        context: Mapping[str, Any] | None = None,
        state: Any = None,
    ) -> None:
        if not isinstance(reason, StopSignal):
            if not message and reason not in tuple(StopReason):
                reason, message = StopReason.STOP_REQUESTED, reason
            reason = StopSignal(
                reason=_stop_reason(reason), message=message, source=source, context=context or {}
            )
        super().__init__(reason.message or str(reason.reason))
        self.signal = reason
        self.state = state
