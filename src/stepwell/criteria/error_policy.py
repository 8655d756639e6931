"""What to do about errors: the policy, the facts it judges, and the criterion that votes."""

from enum import StrEnum
from typing import Any, Protocol, TypeVar
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from stepwell.backoff import Backoff
from stepwell.continuation import ContinuationDecision, ContinuationEvaluation, StopReason
from stepwell.errors import ConfigurationError, ErrorType, ModelErrorKind
from stepwell.parameters import check_integer
from stepwell.state import AgentState, ErrorInfo


class ErrorHandling(StrEnum):
    """What a policy decides about an error."""

    STOP = "stop"
    RETRY = "retry"
    IGNORE = "ignore"


Word = TypeVar("Word", bound=StrEnum)


class ErrorContext(Struct, frozen=True, kw_only=True):
    """The facts about the newest step's errors; without any, everything is zero or None."""

    errors: tuple[ErrorInfo, ...] = ()
    consecutive_failures: int = 0
    total_failures: int = 0
    chance: float = 0.0
    """From 0 to 1, the same for the same step: spreads the retries of many runs."""

    @classmethod
    def none(cls) -> "ErrorContext":
        """Nothing failed."""
        return _NO_ERRORS

    @property
    def type(self) -> ErrorType | None:
        """The most urgent kind among the errors."""
        return min((e.type for e in self.errors), key=lambda kind: kind.urgency, default=None)

    @property
    def tool_name(self) -> str | None:
        """The first tool that failed."""
        return next((error.tool_name for error in self.errors if error.tool_name), None)

    @property
    def provider_facts(self) -> dict[str, Any]:
        """What is known of the first error that a provider gave: its kind, status, request id."""
        error = next((error for error in self.errors if error.kind is not None), None)
        if error is None:
            return {}
        facts = {"kind": error.kind, "status": error.status, "request_id": error.request_id}
        return {name: fact for name, fact in facts.items() if fact is not None}

    @property
    def hopeless(self) -> ErrorInfo | None:
        """The first error that trying again can't help: a wrong key, a refused request."""
        return next((error for error in self.errors if error.retryable is False), None)

    @property
    def retry_after(self) -> float | None:
        """How long the provider asked to wait."""
        waits = [error.retry_after for error in self.errors if error.retry_after is not None]
        return max(waits, default=None)


_NO_ERRORS = ErrorContext()


class ErrorContextResolver(Protocol):
    """Reads the facts about errors from a state."""

    def resolve(self, state: AgentState) -> ErrorContext:
        """The facts about the newest step."""
        ...


class AgentErrorContextResolver:
    """Reads the newest step's errors, but for those of hooks, and the counts of failed steps."""

    def resolve(self, state: AgentState) -> ErrorContext:
        """The facts about the newest step."""
        step = state.current_step
        if step is None or not step.has_errors:
            return _NO_ERRORS
        judged = tuple([e for e in step.errors if e.hook_name is None])
        if not judged:
            return _NO_ERRORS
        return ErrorContext(
            errors=judged,
            consecutive_failures=state.consecutive_failures,
            total_failures=state.total_failures,
            chance=_chance(state),
        )


class ErrorPolicy(Struct, frozen=True, kw_only=True):
    """Handling per kind of error. The run stops at the Nth failure in a row, N = max_retries.

    >>> ErrorPolicy.retry_tool_errors(3).on_tool_error
    <ErrorHandling.RETRY: 'retry'>
    """

    on_tool_error: ErrorHandling = ErrorHandling.STOP
    on_model_error: ErrorHandling = ErrorHandling.STOP
    on_validation_error: ErrorHandling = ErrorHandling.STOP
    on_rate_limit_error: ErrorHandling = ErrorHandling.STOP
    on_timeout_error: ErrorHandling = ErrorHandling.STOP
    on_unknown_error: ErrorHandling = ErrorHandling.STOP
    max_retries: int = 0
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        check_integer(self.max_retries, "max_retries", least=0)
        for error_type in ErrorType:
            _parse_word(ErrorHandling, getattr(self, _field(error_type)))

    @classmethod
    def stop_on_any_error(cls) -> "ErrorPolicy":
        """The default: any error ends the run."""
        return cls()

    @classmethod
    def retry_tool_errors(cls, max_retries: int = 3) -> "ErrorPolicy":
        """Let the model see and repair what failed around tools; model errors stop."""
        return cls(
            on_tool_error=ErrorHandling.RETRY,
            on_validation_error=ErrorHandling.RETRY,
            on_rate_limit_error=ErrorHandling.RETRY,
            on_timeout_error=ErrorHandling.RETRY,
            max_retries=max_retries,
        )

    @classmethod
    def ignore_tool_errors(cls, max_retries: int = 3) -> "ErrorPolicy":
        """Go on whatever tools do; rate limits and timeouts are retried, model errors stop."""
        return cls(
            on_tool_error=ErrorHandling.IGNORE,
            on_validation_error=ErrorHandling.IGNORE,
            on_unknown_error=ErrorHandling.IGNORE,
            on_rate_limit_error=ErrorHandling.RETRY,
            on_timeout_error=ErrorHandling.RETRY,
            max_retries=max_retries,
        )

    @classmethod
    def retry_all(cls, max_retries: int = 5) -> "ErrorPolicy":
        """Retry every kind of error."""
        return cls(
            on_tool_error=ErrorHandling.RETRY,
            on_model_error=ErrorHandling.RETRY,
            on_validation_error=ErrorHandling.RETRY,
            on_rate_limit_error=ErrorHandling.RETRY,
            on_timeout_error=ErrorHandling.RETRY,
            on_unknown_error=ErrorHandling.RETRY,
            max_retries=max_retries,
        )

    def with_max_retries(self, max_retries: int) -> "ErrorPolicy":
        """The same handling with another number of retries."""
        return replace(self, max_retries=max_retries)

    def with_handling(
        self, error_type: ErrorType | str, handling: ErrorHandling | str
    ) -> "ErrorPolicy":
        """The same policy with another handling for one kind of error."""
        field = _field(_parse_word(ErrorType, error_type))
        return replace(self, **{field: _parse_word(ErrorHandling, handling)})

    def with_tool_error_handling(self, handling: ErrorHandling | str) -> "ErrorPolicy":
        """The same policy with another handling for tool errors."""
        return self.with_handling(ErrorType.TOOL, handling)

    def with_backoff(self, backoff: Backoff) -> "ErrorPolicy":
        """The same policy with other waiting times for a provider's faults."""
        return replace(self, backoff=backoff)

    def handling_for(self, context: ErrorContext) -> ErrorHandling:
        """What is wanted for the most urgent kind of these errors, whatever the count."""
        kind = context.type
        return ErrorHandling.IGNORE if kind is None else getattr(self, _field(kind))

    def evaluate(self, context: ErrorContext) -> ErrorHandling:
        """What to do now: a retry becomes a stop once the retries ran out, or can't help."""
        handling = self.handling_for(context)
        is_hopeless = self.is_exhausted(context) or context.hopeless is not None
        return ErrorHandling.STOP if handling is ErrorHandling.RETRY and is_hopeless else handling

    def is_exhausted(self, context: ErrorContext) -> bool:
        """Whether this is the Nth failure in a row."""
        return context.consecutive_failures >= self.max_retries

    def delay(self, context: ErrorContext) -> float:
        """Seconds to wait before the retry: the provider's word, or backoff for its faults."""
        if context.retry_after is not None:
            return context.retry_after
        waits = any(e.type is ErrorType.RATE_LIMIT or e.retryable for e in context.errors)
        return self.backoff.delay(context.consecutive_failures, context.chance) if waits else 0.0


class ErrorPolicyCriterion:
    """Votes as the policy says: stop forbids, retry asks for another step, ignore allows."""

    def __init__(self, policy: ErrorPolicy, resolver: ErrorContextResolver | None = None) -> None:
        self.policy = policy
        self._resolver = resolver or AgentErrorContextResolver()

    @classmethod
    def with_policy(cls, policy: ErrorPolicy) -> "ErrorPolicyCriterion":
        """The criterion for a policy, with the usual reading of errors."""
        return cls(policy)

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """The policy's verdict on the newest step."""
        context = self._resolver.resolve(state)
        if not context.errors:
            return _NO_ERROR_VOTE
        handling = self.policy.evaluate(context)
        exhausted = (
            handling is ErrorHandling.STOP
            and self.policy.handling_for(context) is ErrorHandling.RETRY
            and context.hopeless is None
        )
        retries = handling is ErrorHandling.RETRY
        return ContinuationEvaluation(
            criterion="ErrorPolicyCriterion",
            decision=_DECISIONS[handling],
            reason=self._reason(context, handling, exhausted),
            context={
                "error_type": context.type,
                "consecutive_failures": context.consecutive_failures,
                "total_failures": context.total_failures,
                "max_retries": self.policy.max_retries,
                "handling": handling,
                "tool_name": context.tool_name,
                **context.provider_facts,
            },
            stop_reason=_stop_reason(handling, exhausted),
            hint=_hint(context, exhausted) if handling is ErrorHandling.STOP else None,
            delay_seconds=self.policy.delay(context) if retries else 0.0,
        )

    def _reason(self, context: ErrorContext, handling: ErrorHandling, exhausted: bool) -> str:
        what = "; ".join(_in_words(error) for error in context.errors)
        if exhausted:
            return (
                f"{what}; that was failure {context.consecutive_failures} in a row and "
                f"max_retries is {self.policy.max_retries}"
            )
        if handling is ErrorHandling.RETRY:
            count = f"{context.consecutive_failures} of {self.policy.max_retries}"
            return f"{what}; the policy retries (failure {count})"
        if context.hopeless is not None and self.policy.handling_for(context) is not handling:
            return f"{what}; trying again can't help ({context.hopeless.kind})"
        verb = "stops on" if handling is ErrorHandling.STOP else "ignores"
        return f"{what}; the policy {verb} {context.type} errors"


_DECISIONS = {
    ErrorHandling.STOP: ContinuationDecision.FORBID,
    ErrorHandling.RETRY: ContinuationDecision.REQUEST,
    ErrorHandling.IGNORE: ContinuationDecision.ALLOW,
}

_NO_ERROR_VOTE = ContinuationEvaluation(
    criterion="ErrorPolicyCriterion",
    decision=ContinuationDecision.ALLOW,
    reason="nothing failed in the newest step",
    context={"consecutive_failures": 0},
)


_HINTS: dict[str, str] = {
    ModelErrorKind.CONNECT: "is the server running, and is the model's base_url right?",
    ModelErrorKind.MALFORMED_RESPONSE: "check that the model's base_url leads to its format; if it "
    "does, retry such errors with with_error_policy(ErrorPolicy.retry_all(5)).",
}
_HOPELESS_HINTS: dict[str, str] = {
    ModelErrorKind.AUTHENTICATION: "give a valid key: see the model's key_env or api_key.",
    ModelErrorKind.NOT_FOUND: "check the model's name and the base_url.",
    ModelErrorKind.QUOTA: "the account has no credit left; top it up or use another model.",
    ModelErrorKind.CONTEXT_TOO_LONG: "shorten the conversation or the tool results, or use a "
    "model with a larger context.",
    ModelErrorKind.REFUSAL: "the model refuses this task; rephrase it or use another model.",
    ModelErrorKind.CONTENT_FILTER: "the provider's filter blocked it; rephrase the task.",
}


def _parse_word(words: type[Word], word: str) -> Word:
    try:
        return words(word)
    except ValueError:
        raise ConfigurationError(f"unknown word {word!r}; known: {', '.join(words)}") from None


def _field(error_type: ErrorType) -> str:
    return f"on_{error_type}_error"


def _in_words(error: ErrorInfo) -> str:
    return f"tool {error.tool_name} failed with {error.text}" if error.tool_name else error.text


def _stop_reason(handling: ErrorHandling, exhausted: bool) -> StopReason | None:
    if handling is not ErrorHandling.STOP:
        return None
    return StopReason.RETRY_LIMIT if exhausted else StopReason.ERROR


def _chance(state: AgentState) -> float:
    """A criterion is a pure function of the state, so its dice are thrown by the state."""
    run = state.agent_id if state.execution is None else state.execution.id
    return crc32(f"{run}:{state.step_count}".encode()) / 2**32


def _hint(context: ErrorContext, exhausted: bool) -> str:
    if context.hopeless is not None:
        return _HOPELESS_HINTS.get(
            context.hopeless.kind or "", "correct what the provider complains about."
        )
    if (advice := _HINTS.get(context.provider_facts.get("kind", ""))) is not None:
        return advice
    if exhausted:
        return "raise the limit with with_max_retries(n), or find out why it fails every time."
    if context.tool_name is None or context.type in (ErrorType.MODEL, ErrorType.UNKNOWN):
        return "retry such errors with with_error_policy(ErrorPolicy.retry_all(5))."
    return (
        "let the model see such errors and try again with "
        "with_error_policy(ErrorPolicy.retry_tool_errors(3)), or return the failure as a "
        "ToolFailure value."
    )
