"""Criteria that look at the newest step: its finish reason, its tool calls, its text."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache

from stepwell.continuation import ContinuationDecision, ContinuationEvaluation, StopReason
from stepwell.errors import ConfigurationError
from stepwell.messages import FinishReason, Message
from stepwell.state import AgentState, AgentStep


class FinishReasonCheck:
    """Stops when the model's finish reason is on a list; an empty list has no effect.

    >>> FinishReasonCheck(["length"]).evaluate(AgentState.empty()).decision
    <ContinuationDecision.ALLOW: 'allow'>
    """

    def __init__(self, stop_on: Iterable[FinishReason | str] = ()) -> None:
        try:
            self._stop_on = tuple(FinishReason(reason) for reason in stop_on)
        except ValueError as error:
            raise ConfigurationError(f"{error}; known: {', '.join(FinishReason)}") from None
        self._votes = _finish_votes(self._stop_on)

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """Forbid if the newest step ended for a listed reason."""
        step = state.current_step
        return self._votes[None if step is None else step.finish_reason]


@lru_cache(maxsize=64)
def _finish_votes(
    stop_on: tuple[FinishReason, ...],
) -> Mapping[FinishReason | None, ContinuationEvaluation]:
    """One vote per finish reason, shared by all steps and agents with that list."""
    return {found: _finish_vote(found, stop_on) for found in (None, *FinishReason)}


def _finish_vote(
    found: FinishReason | None, stop_on: tuple[FinishReason, ...]
) -> ContinuationEvaluation:
    stops = found is not None and found in stop_on
    if found is None:
        reason = "no finish reason yet"
    elif stops:
        reason = f"finish reason {found} is on the stop list"
    else:
        reason = f"finish reason {found} does not stop the run"
    if stops and found is not None and found.cuts:
        reason += "; the answer was cut off"
    return ContinuationEvaluation(
        criterion="FinishReasonCheck",
        decision=ContinuationDecision.FORBID if stops else ContinuationDecision.ALLOW,
        reason=reason,
        context={"finish_reason": found, "stop_on": [str(word) for word in stop_on]},
        stop_reason=StopReason.FINISH_REASON if stops else None,
    )


class ToolCallPresenceCheck:
    """Asks for another step while the model calls tools, and allows stopping once it does not.

    An answer that was cut off ends the run as stopped, not as completed. An empty one is asked for
    once more; if that is empty as well, the run fails. Either is let pass when a hook asked for
    another step. ``max_tokens`` is what the model settings allow for one answer.
    """

    def __init__(self, *, max_tokens: int | None = None) -> None:
        self._max_tokens = max_tokens

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """Request after tool calls and before the first step; else allow stopping."""
        step = state.current_step
        if step is None:
            return _presence_vote(None, ran_again=False)
        if (step.was_cut or step.is_empty) and not _is_to_go_on(state):
            return _poor_answer_vote(step, state, self._max_tokens)
        return _presence_vote(len(step.tool_calls), ran_again=step.response is None)


def _is_to_go_on(state: AgentState) -> bool:
    """Whether a hook asked for a step after the newest one, now or when that step was recorded."""
    execution = state.execution
    if execution is None or execution.unrecorded_step is not None:
        return execution is not None and bool(execution.continue_requests)
    return execution.outcome is not None and execution.outcome.should_continue


def _poor_answer_vote(
    step: AgentStep, state: AgentState, max_tokens: int | None
) -> ContinuationEvaluation:
    """The vote on an answer that was cut off or is empty."""
    if step.was_cut:
        return _cut_vote(step, max_tokens)
    before = state.step_count - 2
    if before < 0 or not state.steps[before].step.is_empty:
        return ContinuationEvaluation(
            criterion="ToolCallPresenceCheck",
            decision=ContinuationDecision.REQUEST,
            reason="the model's answer is empty: no text and no tool call; it is asked once more",
            context={"tool_calls": 0},
        )
    return ContinuationEvaluation(
        criterion="ToolCallPresenceCheck",
        decision=ContinuationDecision.FORBID,
        reason="the model's answer is empty, and so was the one before: no text and no tool call",
        context={"tool_calls": 0},
        stop_reason=StopReason.ERROR,
        hint="say in the prompt what the final answer should hold, or use another model.",
    )


def _cut_vote(step: AgentStep, max_tokens: int | None) -> ContinuationEvaluation:
    """What cut the answer off, as far as it is known, and what to do about it."""
    written = step.usage.output_tokens
    if step.finish_reason is FinishReason.CONTENT_FILTER:
        reason = "the provider's content filter cut the answer off"
        hint = "rephrase the task, or use another model."
    elif max_tokens is not None and (not written or written >= max_tokens):
        reason = f"the answer was cut off at max_tokens={max_tokens} of the model settings"
        hint = "raise ModelSettings(max_tokens=n), or ask for a shorter answer or one in parts."
    else:
        reason = (
            f"the provider cut the answer off after {written} output tokens: at its limit for one "
            "answer, or because the model's context is full"
        )
        hint = (
            "set ModelSettings(max_tokens=n) as high as the model allows, shorten the conversation "
            "(UseSummarization), or ask for a shorter answer or one in parts."
        )
    return ContinuationEvaluation(
        criterion="ToolCallPresenceCheck",
        decision=ContinuationDecision.FORBID,
        reason=reason,
        context={
            "finish_reason": step.finish_reason,
            "output_tokens": written,
            "max_tokens": max_tokens,
        },
        stop_reason=StopReason.FINISH_REASON,
        hint=hint,
    )


@cache
def _presence_vote(calls: int | None, *, ran_again: bool) -> ContinuationEvaluation:
    """One vote for all steps with that many calls; None before the first step."""
    if calls is None:
        reason = "no step yet"
    elif calls and ran_again:
        reason = f"{calls} answered call{'s' if calls > 1 else ''} ran; the model has to see it"
    elif calls:
        reason = f"the model called {calls} tool{'s' if calls > 1 else ''}"
    else:
        reason = "the model called no tools"
    goes_on = calls is None or calls > 0
    return ContinuationEvaluation(
        criterion="ToolCallPresenceCheck",
        decision=ContinuationDecision.REQUEST if goes_on else ContinuationDecision.ALLOW_STOP,
        reason=reason,
        context={"tool_calls": calls or 0},
    )


class ResponseContentCheck:
    """Asks for another step while a predicate holds for the newest message of the step."""

    def __init__(self, predicate: Callable[[Message], bool]) -> None:
        self._predicate = predicate

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """Allow before any response; then request if the predicate holds, else allow stopping."""
        step = state.current_step
        if step is None or not step.messages:
            decision, reason = ContinuationDecision.ALLOW, "no response yet"
        elif self._predicate(step.messages[-1]):
            decision, reason = ContinuationDecision.REQUEST, "the response asks for another step"
        else:
            decision, reason = ContinuationDecision.ALLOW_STOP, "the response needs no other step"
        return ContinuationEvaluation(
            criterion="ResponseContentCheck", decision=decision, reason=reason
        )
