"""What the hooks of ``UseSummarization`` do before each model turn and after each step."""

import logging
from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stepwell.capabilities.summarization.cutting import Tally, TokenCounter, best_cut
from stepwell.capabilities.summarization.summarizer import SHORTEST_SUMMARY, Answered, Summarizer
from stepwell.capabilities.summarization.summary import Summary, newest_request
from stepwell.capabilities.summarization.summary_wait import NO_WAIT, SummaryWait
from stepwell.hooks import HookContext
from stepwell.messages import Message, Usage
from stepwell.models import ModelRequest
from stepwell.state import AgentState
from stepwell.text import cut_middle

logger = logging.getLogger("stepwell.capabilities.summarization")

_MOST_RUNS = 1024


class Bounds(Struct, frozen=True, kw_only=True):
    """How much may be sent, and how much of it is kept word for word."""

    max_tokens: int
    keep_tokens: int
    keep_messages: int | None


class _Run:
    """What is known of one execution between its hooks. Only a cache: all of it can be found out
    again, but for what was spent since the last step."""

    __slots__ = ("_sized", "cost", "tally", "unsaved", "usage", "wait")

    def __init__(self, count: TokenCounter) -> None:
        self.tally = Tally(count)
        self.unsaved: Summary | None = None
        self.wait: SummaryWait | None = None
        self.usage = Usage()
        self.cost = 0.0
        self._sized: tuple[str, int] = ("", 0)

    def size_of(self, summary: Summary | None) -> int:
        """Of the message that tells the summary; counted once."""
        if summary is None:
            return 0
        if self._sized[0] != summary.last_id:
            self._sized = (summary.last_id, self.tally.size_of(summary.message))
        return self._sized[1]

    def spend(self, answered: Answered) -> None:
        self.usage += answered.usage
        self.cost += answered.cost


class SummarizedRuns:
    """The hooks of one agent, and what they know of the runs in flight."""

    def __init__(self, bounds: Bounds, summarizer: Summarizer, count: TokenCounter) -> None:
        self._bounds = bounds
        self._summarizer = summarizer
        self._count = count
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def forget(self, context: HookContext) -> None:
        """A run begins or is over; between two runs answers may have replaced messages."""
        self._runs.pop(_execution_id(context.state), None)

    async def shorten(self, context: HookContext) -> HookContext | None:
        """Before a model turn: the request with the summary in place of the older messages."""
        request, state = context.request, context.state
        if request is None:
            return None
        run = self._run(state)
        summary = run.unsaved or Summary.of(state)
        run.tally.follow(state.messages, summary.until if summary else 0)
        newer = await self._newer(run, summary, state)
        if newer is not None:
            run.unsaved = summary = newer
            state = state.with_metadata(newer.as_metadata)
        if summary is None:
            return None
        return context.with_state(state).with_request(_told(request, summary))

    def settle(self, context: HookContext) -> HookContext | None:
        """After a step: it keeps the summary, also when the turn failed, and pays for it."""
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
            paid = replace(step, usage=step.usage + run.usage, cost=step.cost + run.cost)
            state = state.with_step_amended(paid)
            run.usage, run.cost = Usage(), 0.0
        return None if state is context.state else context.with_state(state)

    async def _newer(self, run: _Run, summary: Summary | None, state: AgentState) -> Summary | None:
        """A summary that reaches further, if one is needed and can be made."""
        bounds, tally = self._bounds, run.tally
        size = tally.total + run.size_of(summary)
        wait = run.wait or SummaryWait.of(state)
        if size <= bounds.max_tokens or wait.steps_left:
            return None
        start = summary.until if summary else 0
        behind = state.messages[start:]
        cut = best_cut(
            behind,
            tally.sizes,
            keep_tokens=bounds.keep_tokens,
            keep_messages=bounds.keep_messages,
            waiting={p.call_id for p in state.pending if p.call_id is not None},
        )
        if not self._is_worth_it(sum(tally.sizes[:cut]), tally.total):
            return None
        answered = await self._summarizer.summarize(behind[:cut], summary, state)
        run.spend(answered)
        if answered.problem:
            run.wait = wait.after_failure()
            logger.warning(
                "the conversation could not be summarized and is sent whole; tried again in %d "
                "steps: %s",
                run.wait.steps_left,
                answered.problem,
            )
            return None
        run.wait = NO_WAIT
        newer = self._fitted(_summary(answered.text, summary, behind, start, cut), tally)
        tally.follow(state.messages, newer.until)
        logger.info(
            "%d messages were moved to a summary; %d are kept", newer.until, len(behind) - cut
        )
        return newer

    def _is_worth_it(self, moved: int, total: int) -> bool:
        """Not where nothing can go, nor for a few words beside a message that is too long alone."""
        still_too_much = total - moved > self._bounds.max_tokens
        return moved > (self._bounds.max_tokens // 10 if still_too_much else 0)

    def _fitted(self, summary: Summary, tally: Tally) -> Summary:
        """The summary in at most a quarter of the limit: it leaves room for what comes."""
        allowed = self._bounds.max_tokens // 4
        while tally.size_of(summary.message) > allowed:
            longest = max(len(summary.text), len(summary.request))
            if longest <= SHORTEST_SUMMARY * 10:
                break
            summary = replace(
                summary,
                text=cut_middle(summary.text, longest * 3 // 4),
                request=cut_middle(summary.request, longest * 3 // 4),
            )
        return summary

    def _run(self, state: AgentState) -> _Run:
        key = _execution_id(state)
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = _Run(self._count)
            if len(self._runs) > _MOST_RUNS:  # runs that were given up never say so
                self._runs.popitem(last=False)
        return run


def _told(request: ModelRequest, summary: Summary) -> ModelRequest:
    end = summary.end_in(request.messages)
    if end is None:
        return request
    return replace(request, messages=(summary.message, *request.messages[end:]))


def _summary(
    text: str, before: Summary | None, behind: Sequence[Message], start: int, cut: int
) -> Summary:
    request = ""
    if not newest_request(behind[cut:]):
        request = newest_request(behind[:cut]) or (before.request if before else "")
    return Summary(text=text, until=start + cut, last_id=behind[cut - 1].id, request=request)


def _execution_id(state: AgentState) -> str:
    return state.agent_id if state.execution is None else state.execution.id
