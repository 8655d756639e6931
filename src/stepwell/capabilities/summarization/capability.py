"""``UseSummarization``: before each model turn, what is too long for it is moved to a summary.

The state's messages stay whole. The summary is kept in the metadata, and only the request that is
sent begins with it; so the start of the prompt stays the same until the next summary.
"""

from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.summarization.cutting import TokenCounter, roughly_counted
from stepwell.capabilities.summarization.runs import Bounds, SummarizedRuns
from stepwell.capabilities.summarization.summarizer import DEFAULT_PROMPT, Summarizer
from stepwell.capabilities.summarization.summary import SOURCE
from stepwell.errors import ConfigurationError
from stepwell.hooks import HookTrigger, make_hook
from stepwell.models import Model
from stepwell.parameters import check_text

DEFAULT_MAX_TOKENS = 64_000
SMALLEST_LIMIT = 10
_EARLY = 900
"""Before the hooks that add to a request, so that what they add is kept."""


class UseSummarization:
    """When the conversation has more than ``max_tokens``, its older part is told as a summary.
    Unless given, that is 64,000, or a quarter of what a run of the agent may use in all.

    ``keep_tokens`` (a quarter of ``max_tokens`` unless given) and ``keep_messages`` bound what is
    kept word for word; a tool call and its results are never parted, and the newest message always
    stays. ``model`` (the agent's own unless given, an object or a name) writes the summary, told
    how by ``prompt``; what that costs counts into the run. ``count_tokens`` is asked for the size
    of each message once, when it is first needed; without it a quarter of the characters is used.
    A summary that can't be made is logged and tried again some steps later; the wait is kept in the
    metadata and so holds in later executions of the conversation.

    >>> from stepwell import Agent
    >>> from stepwell.testing import ScriptedModel
    >>> agent = Agent(ScriptedModel(["Hello."]), capabilities=[UseSummarization(max_tokens=8000)])
    >>> agent.run_sync("Hi").final_response
    'Hello.'
    """

    def __init__(
        self,
        *,
        max_tokens: int | None = None,
        keep_tokens: int | None = None,
        keep_messages: int | None = None,
        model: Model | str | None = None,
        count_tokens: TokenCounter | None = None,
        prompt: str | None = None,
    ) -> None:
        self._max_tokens = max_tokens
        self._keep_tokens = keep_tokens
        self._keep_messages = (
            None if keep_messages is None else _number(keep_messages, "keep_messages", least=1)
        )
        self._bounds(DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens)
        if count_tokens is not None and not callable(count_tokens):
            raise ConfigurationError(
                f"count_tokens is {count_tokens!r:.80}; give a function from a Message to its "
                "tokens"
            )
        if prompt is not None:
            check_text(prompt, "prompt")
        if isinstance(model, str):
            check_text(model, "model")
        elif model is not None:
            _refuse_odd(model)
        self._model = model
        self._count = count_tokens or roughly_counted
        self._prompt = prompt or DEFAULT_PROMPT

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan whose requests stay within the limit."""
        return plan.when_complete(self._completed)

    def _completed(self, plan: AgentPlan) -> AgentPlan:
        if any(hook.name == SOURCE for hook in plan.hooks):
            raise ConfigurationError("an agent takes one UseSummarization; two were given")
        bounds = self._bounds(self._limit(plan.max_tokens))
        summarizer = self._summarizer(plan, bounds.max_tokens)
        if summarizer is None:
            return plan
        runs = SummarizedRuns(bounds, summarizer, self._count)
        hooks = (
            make_hook(trigger, function, priority=priority, name=SOURCE, asks_model=True)
            for trigger, function, priority in (
                (HookTrigger.BEFORE_EXECUTION, runs.forget, 0),
                (HookTrigger.BEFORE_INFERENCE, runs.shorten, _EARLY),
                (HookTrigger.AFTER_STEP, runs.settle, _EARLY),
                (HookTrigger.AFTER_EXECUTION, runs.forget, -_EARLY),
            )
        )
        return replace(plan, hooks=(*plan.hooks, *hooks))

    def _bounds(self, max_tokens: int) -> Bounds:
        return Bounds(
            max_tokens=_number(max_tokens, "max_tokens", least=SMALLEST_LIMIT),
            keep_tokens=_kept(self._keep_tokens, max_tokens),
            keep_messages=self._keep_messages,
        )

    def _limit(self, budget: int | None) -> int:
        """A run may use so many tokens in all, and each of its steps sends the conversation."""
        if self._max_tokens is None:
            usual = DEFAULT_MAX_TOKENS if budget is None else min(DEFAULT_MAX_TOKENS, budget // 4)
            return max(usual, SMALLEST_LIMIT)
        if budget is not None and self._max_tokens >= budget:
            raise ConfigurationError(
                f"UseSummarization(max_tokens={self._max_tokens}) would never come to anything: "
                f"the agent's runs end at {budget} tokens in all; raise Agent(max_tokens=...), or "
                "summarize earlier"
            )
        return self._max_tokens

    def _summarizer(self, plan: AgentPlan, limit: int) -> Summarizer | None:
        """None for a plan without model and driver, which is refused when it is assembled."""
        if getattr(plan.driver, "asks_model", True) is False:
            raise ConfigurationError(
                f"UseSummarization has no effect with {type(plan.driver).__name__}, which makes no "
                "model requests; leave it out, or use another driver (in tests Agent with a "
                "ScriptedModel)"
            )
        asked = plan.asked_apart(self._model, "UseSummarization")
        if asked is None:
            return None
        model, settings = asked
        return Summarizer(
            model=model,
            settings=settings,
            prompt=self._prompt,
            most_characters=min(max(3 * limit, 4_000), 400_000),
            words=min(max(limit // 8, 60), 800),
        )


def _kept(keep_tokens: int | None, max_tokens: int) -> int:
    if keep_tokens is None:
        return max_tokens // 4
    most = max_tokens // 2
    if _number(keep_tokens, "keep_tokens", least=0) > most:
        raise ConfigurationError(
            f"keep_tokens is {keep_tokens}, and max_tokens {max_tokens}; keep at most half of it "
            f"({most}), or each turn needs a new summary"
        )
    return keep_tokens


def _number(given: int, name: str, *, least: int) -> int:
    if type(given) is not int or given < least:
        raise ConfigurationError(
            f"{name} must be a whole number of at least {least}, got {given!r}"
        )
    return given


def _refuse_odd(model: Model) -> None:
    if isinstance(model, type) or not callable(getattr(model, "respond", None)):
        raise ConfigurationError(
            f"{model!r:.80} is not a model; give UseSummarization a model object, or a name such "
            'as "openai:gpt-5-mini"'
        )
