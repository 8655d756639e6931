"""``UseSummarization``: before a model turn, replaces older messages with a summary if needed.

The state keeps all messages. The summary is stored in the metadata, and only the request starts
with it, so the start of the prompt stays the same until the next summary.
"""

from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.summarization.summarizer import DEFAULT_PROMPT, Summarizer
from stepwell.capabilities.summarization.summary import SOURCE
from stepwell.capabilities.summarization.summary_hooks import Bounds, SummaryHooks
from stepwell.capabilities.summarization.token_tally import TokenCounter, estimate_tokens
from stepwell.errors import ConfigurationError
from stepwell.hooks import HookTrigger, make_hook
from stepwell.models import Model
from stepwell.models.attempts import check_model
from stepwell.parameters import check_integer, check_text

DEFAULT_MAX_TOKENS = 64_000
MIN_MAX_TOKENS = 10
_EARLY = 900
"""Before the hooks that add to a request, so that their additions are kept."""


class UseSummarization:
    """Replaces the older part of a conversation over ``max_tokens`` with a summary. The default is
    64,000, or a quarter of the agent's token limit if that is less.

    ``keep_tokens`` (default: a quarter of ``max_tokens``) and ``keep_messages`` limit what is kept
    verbatim; a tool call is never separated from its results, and the newest message always stays.
    ``model`` (an object or a name; default: the agent's own) writes the summary according to
    ``prompt``; its cost counts towards the run. ``count_tokens`` is called once per message; the
    default estimate is a quarter of the characters. A failed summary is logged and retried some
    steps later; the wait is stored in the metadata and so holds in later executions.

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
            None
            if keep_messages is None
            else check_integer(keep_messages, "keep_messages", least=1)
        )
        self._bounds(DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens)
        if count_tokens is not None and not callable(count_tokens):
            raise ConfigurationError(
                f"count_tokens is {count_tokens!r:.80}; pass a function from a Message to its "
                f"tokens"
            )
        if prompt is not None:
            check_text(prompt, "prompt")
        if isinstance(model, str):
            check_text(model, "model")
        elif model is not None:
            check_model(model, "UseSummarization")
        self._model = model
        self._count = count_tokens or estimate_tokens
        self._prompt = prompt or DEFAULT_PROMPT

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the summarization hooks."""
        return plan.when_complete(self._add_hooks)

    def _add_hooks(self, plan: AgentPlan) -> AgentPlan:
        if any(hook.name == SOURCE for hook in plan.hooks):
            raise ConfigurationError("UseSummarization was added twice; one is enough")
        bounds = self._bounds(self._limit(plan.max_tokens))
        summarizer = self._summarizer(plan, bounds.max_tokens)
        if summarizer is None:
            return plan
        runs = SummaryHooks(bounds, summarizer, self._count)
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
            max_tokens=check_integer(max_tokens, "max_tokens", least=MIN_MAX_TOKENS),
            keep_tokens=_check_keep_tokens(self._keep_tokens, max_tokens),
            keep_messages=self._keep_messages,
        )

    def _limit(self, budget: int | None) -> int:
        """Return the limit for the conversation, which each step sends, within the run's budget."""
        if self._max_tokens is None:
            default = DEFAULT_MAX_TOKENS if budget is None else min(DEFAULT_MAX_TOKENS, budget // 4)
            return max(default, MIN_MAX_TOKENS)
        if budget is not None and self._max_tokens >= budget:
            raise ConfigurationError(
                f"UseSummarization(max_tokens={self._max_tokens}) would never take effect: the "
                f"agent's runs end at {budget} tokens. Raise Agent(max_tokens=...), or summarize "
                "earlier"
            )
        return self._max_tokens

    def _summarizer(self, plan: AgentPlan, limit: int) -> Summarizer | None:
        """Return the summarizer; None without model and driver, which assembling the plan
        refuses."""
        if getattr(plan.driver, "asks_model", True) is False:
            raise ConfigurationError(
                f"UseSummarization has no effect with {type(plan.driver).__name__}, which makes no "
                "model requests. Remove it, or use another driver (in tests an Agent with a "
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
            max_chars=min(max(3 * limit, 4_000), 400_000),
            max_words=min(max(limit // 8, 60), 800),
        )


def _check_keep_tokens(keep_tokens: int | None, max_tokens: int) -> int:
    if keep_tokens is None:
        return max_tokens // 4
    limit = max_tokens // 2
    if check_integer(keep_tokens, "keep_tokens", least=0) > limit:
        raise ConfigurationError(
            f"keep_tokens ({keep_tokens}) must be at most half of max_tokens ({limit}); otherwise "
            "each turn needs a new summary"
        )
    return keep_tokens
