"""The fluent door to a plan. Each method returns a new builder; ``build`` makes the agent."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any

from msgspec.structs import replace

from stepwell.agent.agent import Agent
from stepwell.agent.dynamic_prompt import PromptFunction, prompt_hooks
from stepwell.agent.output import TypedOutput
from stepwell.agent.plan import AgentCapability, AgentPlan
from stepwell.clock import Clock
from stepwell.criteria import ContinuationCriteria, Criterion, ErrorPolicy
from stepwell.drivers import Driver
from stepwell.events import EventBus
from stepwell.hooks import HookContext, HookFunction, HookTrigger, make_hook
from stepwell.ids import IdFactory
from stepwell.loop import AtLimit
from stepwell.messages import FinishReason, Message
from stepwell.models import CachedContext, Model, ModelPresets, ModelSettings, ResponseFormat
from stepwell.parameters import check_kind, check_text
from stepwell.state import AgentState, RepeatedCalls
from stepwell.tools import ToolLike, Tools
from stepwell.tools.registry import listed_tools

Processor = Callable[[AgentState], Awaitable[AgentState] | AgentState]


class AgentBuilder:
    """Builds agents step by step; a builder never changes, so it can be kept and branched.

    >>> from stepwell.testing import DeterministicAgentDriver
    >>> driver = DeterministicAgentDriver.from_responses("Done.")
    >>> agent = AgentBuilder.base().with_driver(driver).with_max_steps(5).build()
    >>> agent.run_sync("Do it").final_response
    'Done.'
    """

    def __init__(self, plan: AgentPlan) -> None:
        self.plan = plan

    @classmethod
    def base(cls) -> "AgentBuilder":
        """Start with sane limits and the usual criteria."""
        return cls(AgentPlan())

    @classmethod
    def new(cls) -> "AgentBuilder":
        """Start blank: no limits and no criteria, so nothing runs until some are added."""
        return cls(AgentPlan.blank())

    def build(self) -> Agent:
        """The agent; raises ``ConfigurationError`` if the parts do not fit."""
        return Agent.from_plan(self.plan)

    def with_model(self, model: Model) -> "AgentBuilder":
        """Ask this model."""
        return self._with(model=model)

    def with_llm_preset(self, preset: str) -> "AgentBuilder":
        """Ask the model that a preset names."""
        return self._with(llm_preset=preset)

    def with_model_presets(self, presets: ModelPresets) -> "AgentBuilder":
        """Look presets up in this table."""
        return self._with(model_presets=presets)

    def with_model_settings(self, settings: ModelSettings) -> "AgentBuilder":
        """Ask the model with these settings; later ones win over earlier ones."""
        return self._with(settings=settings.over(self.plan.settings))

    def with_driver(self, driver: Driver) -> "AgentBuilder":
        """Take steps with this driver instead of the usual one."""
        return self._with(driver=driver)

    def with_tools(
        self, tools: "Iterable[ToolLike] | Tools | ToolLike", *more: ToolLike
    ) -> "AgentBuilder":
        """Add tools: functions, tool objects, a list of them, or ``Tools``."""
        return AgentBuilder(self.plan.with_tools(*listed_tools(tools), *more))

    def with_capability(self, capability: AgentCapability) -> "AgentBuilder":
        """Add a feature."""
        return AgentBuilder(self.plan.with_capability(capability))

    def add_hook(
        self,
        triggers: HookTrigger | str | Iterable[HookTrigger | str],
        function: HookFunction,
        *,
        priority: int = 0,
        name: str | None = None,
    ) -> "AgentBuilder":
        """Run a function at these moments; higher priority runs first."""
        hook = make_hook(triggers, function, priority=priority, name=name)
        return AgentBuilder(self.plan.with_hook(hook))

    def add_processor(self, processor: Processor, *, priority: int = 0) -> "AgentBuilder":
        """Change the state after each step; an after-step hook that sees only the state."""

        async def process(context: HookContext) -> HookContext:
            changed = processor(context.state)
            return context.with_state(await changed if isawaitable(changed) else changed)

        name = getattr(processor, "__qualname__", type(processor).__name__)
        return self.add_hook(HookTrigger.AFTER_STEP, process, priority=priority, name=name)

    def add_continuation_criteria(
        self, *criteria: Criterion | ContinuationCriteria
    ) -> "AgentBuilder":
        """Add votes on whether the run goes on."""
        return AgentBuilder(self.plan.with_criteria(*criteria))

    def with_max_steps(self, steps: int | None) -> "AgentBuilder":
        """At most so many steps per execution; None for no limit."""
        return self._with(max_steps=steps)

    def with_max_tokens(self, tokens: int | None) -> "AgentBuilder":
        """At most so many tokens per execution; None for no limit."""
        return self._with(max_tokens=tokens)

    def with_max_cost(self, cost: float | None) -> "AgentBuilder":
        """At most so much money per execution; None for no limit."""
        return self._with(max_cost=cost)

    def with_timeout(self, seconds: float | None) -> "AgentBuilder":
        """At most so many seconds from the start of a run; None for no limit."""
        return self._with(timeout=seconds)

    def with_cumulative_timeout(self, seconds: float) -> "AgentBuilder":
        """At most so many seconds of active work over all pauses, instead of wall time."""
        return self._with(cumulative_timeout=seconds, timeout=None)

    def with_max_retries(self, retries: int) -> "AgentBuilder":
        """Stop at the Nth failure in a row; retries tool errors unless a policy says more."""
        return self._with(max_retries=retries)

    def with_error_policy(self, policy: ErrorPolicy) -> "AgentBuilder":
        """Decide per kind of error whether to stop, retry or ignore."""
        return self._with(error_policy=policy)

    def with_stop_on_finish_reasons(self, *reasons: FinishReason | str) -> "AgentBuilder":
        """Stop when the model ends its turn for one of these reasons."""
        return self._with(stop_on_finish_reasons=reasons)

    def with_repeated_calls(self, repeated_calls: RepeatedCalls | None) -> "AgentBuilder":
        """When the same call made again and again is noted and stops the run; None for never."""
        return self._with(repeated_calls=repeated_calls)

    def at_limit(self, choice: AtLimit | str) -> "AgentBuilder":
        """What happens at a limit: stop, wrap_up, pause or raise."""
        return self._with(at_limit=choice)

    def with_cached_context(self, context: CachedContext) -> "AgentBuilder":
        """Add stable parts of the prompt, sent first in every request."""
        check_kind(context, "cached_context", CachedContext)
        return self._with(context=context.behind(self.plan.context))

    def with_system_prompt(self, prompt: str | PromptFunction) -> "AgentBuilder":
        """Add an instruction to the stable parts of the prompt, or a function of the run's context
        that makes one before each model turn."""
        if callable(prompt):
            return self._with(hooks=(*self.plan.hooks, *prompt_hooks(prompt)))
        text = check_text(prompt, "system_prompt")
        return AgentBuilder(self.plan.with_context_messages(Message.system(text)))

    def with_output(self, output_type: Any, *, retries: int = 2) -> "AgentBuilder":
        """The final answer as a value of that type, asked for again if it does not fit."""
        return AgentBuilder(TypedOutput(output_type, retries=retries).configure(self.plan))

    def with_response_format(
        self, response_format: ResponseFormat | Mapping[str, Any]
    ) -> "AgentBuilder":
        """The response format of requests that set none themselves."""
        context = replace(self.plan.context, response_format=response_format)
        return self._with(context=context)

    def with_max_parallel_tools(self, bound: int) -> "AgentBuilder":
        """How many calls of one response may run at once."""
        return self._with(max_parallel_tools=bound)

    def with_max_result_characters(self, limit: int) -> "AgentBuilder":
        """How long the result of a tool may be; the rest is cut, with a note."""
        return self._with(max_result_characters=limit)

    def with_model_retries(self, retries: int) -> "AgentBuilder":
        """Ask a model turn that failed before any output so often again; 0 for never."""
        return self._with(model_retries=retries)

    def with_cancel_grace(self, seconds: float) -> "AgentBuilder":
        """Abandon a cancelled tool, hook, model or driver that does not end in so many seconds."""
        return self._with(cancel_grace=seconds)

    def with_events(self, events: EventBus) -> "AgentBuilder":
        """Tell this bus what happens."""
        return self._with(events=events)

    def with_clock(self, clock: Clock) -> "AgentBuilder":
        """Take time from this clock."""
        return self._with(clock=clock)

    def with_ids(self, new_id: IdFactory) -> "AgentBuilder":
        """Take ids from this function."""
        return self._with(new_id=new_id)

    def _with(self, **changes: Any) -> "AgentBuilder":
        return AgentBuilder(replace(self.plan, **changes))
