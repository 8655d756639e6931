"""The hooks of ``UseSummarization``, which run before each model turn and after each step."""

import logging
from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stepwell.capabilities.summarization.summarizer import (
    MIN_SUMMARY_CHARS,
    Summarizer,
    SummaryAnswer,
)
from stepwell.capabilities.summarization.summary import Summary, newest_request
from stepwell.capabilities.summarization.summary_wait import NO_WAIT, SummaryWait
from stepwell.capabilities.summarization.token_tally import Tally, TokenCounter, best_cut
from stepwell.hooks import HookContext
from stepwell.messages import Message, Usage
from stepwell.models import ModelRequest
from stepwell.state import AgentState
from stepwell.text import truncate_middle

logger = logging.getLogger("stepwell.capabilities.summarization")

_MAX_RUNS = 1024


class Bounds(Struct, frozen=True, kw_only=True):
    """How much may be sent, and how much of it is kept verbatim."""

    max_tokens: int
    keep_tokens: int
    keep_messages: int | None


class _RunCache:
    """State of one execution between its hooks. Only a cache: all of it can be recomputed, except
    usage and cost since the last step."""

    __slots__ = ("_sized", "cost", "tally", "unsaved", "usage", "wait")

    def __init__(self, count: TokenCounter) -> None:
        self.tally = Tally(count)
        self.unsaved: Summary | None = None
        self.wait: SummaryWait | None = None
        self.usage = Usage()
        self.cost = 0.0
        self._sized: tuple[str, int] = ("", 0)

    def size_of(self, summary: Summary | None) -> int:
        """Return the size of the summary's message, counted once."""
        if summary is None:
            return 0
        if self._sized[0] != summary.last_id:
            self._sized = (summary.last_id, self.tally.size_of(summary.message))
        return self._sized[1]

    def spend(self, answer: SummaryAnswer) -> None:
        self.usage += answer.usage
        self.cost += answer.cost


class SummaryHooks:
    """The hooks of one agent, with a cache for its runs in flight."""

    def __init__(self, bounds: Bounds, summarizer: Summarizer, count: TokenCounter) -> None:
        self._bounds = bounds
        self._summarizer = summarizer
        self._count = count
        self._runs: OrderedDict[str, _RunCache] = OrderedDict()

    def forget(self, context: HookContext) -> None:
        """Drop the cache at the start and end of a run: answers may replace messages in between."""
        self._runs.pop(_execution_id(context.state), None)

    async def shorten(self, context: HookContext) -> HookContext | None:
        """Before a model turn, replace the older messages in the request with the summary."""
        request, state = context.request, context.state
        if request is None:
            return None
        run = self._cache_of(state)
        summary = run.unsaved or Summary.of(state)
        run.tally.follow(state.messages, summary.until if summary else 0)
        newer = await self._extend_summary(run, summary, state)
        if newer is not None:
            run.unsaved = summary = newer
            state = state.with_metadata(newer.as_metadata)
        if summary is None:
            return None
        return context.with_state(state).with_request(_with_summary(request, summary))

    def settle(self, context: HookContext) -> HookContext | None:
        """After a step, store the summary, even if the turn failed, and charge its cost to the
        step."""
        run, state = self._runs.get(_execution_id(context.state)), context.state
        if run is None:
            return None
        before = SummaryWait.of(state)
        wait = (run.wait or before).after_step()
        run.wait = None
        if wait != before:
            state = wait.stored_in(state)
        if run.unsaved is not None:
            state, run.unsaved = state.with_metadata(run.unsaved.as_metadata), None
        step = state.current_step
        if step is not None and (run.usage or run.cost):
            charged = replace(step, usage=step.usage + run.usage, cost=step.cost + run.cost)
            state = state.with_step_amended(charged)
            run.usage, run.cost = Usage(), 0.0
        return None if state is context.state else context.with_state(state)

    async def _extend_summary(
        self, run: _RunCache, summary: Summary | None, state: AgentState
    ) -> Summary | None:
        """Return a summary of more messages if one is needed and can be made, else None."""
        bounds, tally = self._bounds, run.tally
        size = tally.total + run.size_of(summary)
        wait = run.wait or SummaryWait.of(state)
        if size <= bounds.max_tokens or wait.steps_left:
            return None
        start = summary.until if summary else 0
        later = state.messages[start:]
        cut = best_cut(
            later,
            tally.sizes,
            keep_tokens=bounds.keep_tokens,
            keep_messages=bounds.keep_messages,
            pending_calls={p.call_id for p in state.pending if p.call_id is not None},
        )
        if not self._is_worthwhile(sum(tally.sizes[:cut]), tally.total):
            return None
        answer = await self._summarizer.summarize(later[:cut], summary, state)
        run.spend(answer)
        if answer.problem:
            run.wait = wait.after_failure()
            logger.warning(
                "the conversation could not be summarized and is sent in full; retrying in %d "
                "steps: %s",
                run.wait.steps_left,
                answer.problem,
            )
            return None
        run.wait = NO_WAIT
        newer = self._fit_summary(_summary(answer.text, summary, later, start, cut), tally)
        tally.follow(state.messages, newer.until)
        logger.info("%d messages were summarized; %d are kept", newer.until, len(later) - cut)
        return newer

    def _is_worthwhile(self, dropped: int, total: int) -> bool:
        """Return whether a summary would help: not if nothing can be dropped, or only a little next
        to a message that is too long by itself."""
        is_still_too_long = total - dropped > self._bounds.max_tokens
        return dropped > (self._bounds.max_tokens // 10 if is_still_too_long else 0)

    def _fit_summary(self, summary: Summary, tally: Tally) -> Summary:
        """Shorten the summary to a quarter of the limit, to leave room for later messages."""
        allowed = self._bounds.max_tokens // 4
        while tally.size_of(summary.message) > allowed:
            length = max(len(summary.text), len(summary.request))
            if length <= MIN_SUMMARY_CHARS * 10:
                break
            summary = replace(
                summary,
                text=truncate_middle(summary.text, length * 3 // 4),
                request=truncate_middle(summary.request, length * 3 // 4),
            )
        return summary

    def _cache_of(self, state: AgentState) -> _RunCache:
        key = _execution_id(state)
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = _RunCache(self._count)
            if len(self._runs) > _MAX_RUNS:  # abandoned runs are never reported
                self._runs.popitem(last=False)
        return run


def _with_summary(request: ModelRequest, summary: Summary) -> ModelRequest:
    end = summary.end_in(request.messages)
    if end is None:
        return request
    return replace(request, messages=(summary.message, *request.messages[end:]))


def _summary(
    text: str, before: Summary | None, later: Sequence[Message], start: int, cut: int
) -> Summary:
    request = ""
    if not newest_request(later[cut:]):
        request = newest_request(later[:cut]) or (before.request if before else "")
    return Summary(text=text, until=start + cut, last_id=later[cut - 1].id, request=request)


def _execution_id(state: AgentState) -> str:
    return state.agent_id if state.execution is None else state.execution.id
