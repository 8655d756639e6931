"""What an agent is made of, before it is built. Both doors, ``Agent(...)`` and the builder, make a
plan; ``assemble`` turns it into a loop, and is the one place where the parts are put together.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stepwell.agent.base_criteria import BASE_CRITERIA
from stepwell.agent.bound_driver import adopt_driver_parts, bind_driver
from stepwell.clock import Clock, SystemClock
from stepwell.criteria import ContinuationCriteria, Criterion, ErrorPolicy
from stepwell.criteria.limits import DEFAULT_MAX_STEPS, DEFAULT_MAX_TOKENS, DEFAULT_TIMEOUT
from stepwell.drivers import Driver, ToolCallingDriver
from stepwell.errors import ConfigurationError
from stepwell.events import EventBus
from stepwell.foreign import CANCEL_GRACE
from stepwell.hooks import Hook, HookStack
from stepwell.ids import IdFactory, new_id
from stepwell.loop import AgentLoop, AtLimit
from stepwell.messages import FinishReason, Message
from stepwell.models import (
    CachedContext,
    Model,
    ModelPresets,
    ModelSettings,
    ResponseFormat,
)
from stepwell.models.settings import NO_SETTINGS
from stepwell.state import Budget, RepeatedCalls
from stepwell.tools import CallLedger, ToolExecutor, ToolLike, Tools
from stepwell.tools.result_text import DEFAULT_RESULT_CHARACTERS

DEFAULT_MODEL_RETRIES = 2
Item = TypeVar("Item")
NO_PRESETS = ModelPresets()


class AgentCapability(Protocol):
    """A feature that can be added to an agent: one object with one method."""

    def configure(self, plan: "AgentPlan") -> "AgentPlan":
        """The plan with this feature's tools, hooks, criteria and context added."""
        ...


class Completion(Struct, frozen=True, eq=False):
    """A change that waits for the whole plan."""

    change: "Callable[[AgentPlan], AgentPlan]"
    order: int


class AgentPlan(Struct, frozen=True, kw_only=True, eq=False):
    """Everything an agent is made of. None for a limit means that there is none."""

    model: Model | None = None
    llm_preset: str | None = None
    model_presets: ModelPresets = NO_PRESETS
    driver: Driver | None = None
    tools: tuple[ToolLike | Tools, ...] = ()
    capabilities: tuple[str, ...] = ()
    context: CachedContext = CachedContext()
    settings: ModelSettings = ModelSettings()
    hooks: tuple[Hook, ...] = ()
    criteria: tuple[Criterion | ContinuationCriteria, ...] = ()
    has_base_criteria: bool = True
    max_steps: int | None = DEFAULT_MAX_STEPS
    max_tokens: int | None = DEFAULT_MAX_TOKENS
    max_cost: float | None = None
    timeout: float | None = DEFAULT_TIMEOUT
    cumulative_timeout: float | None = None
    stop_on_finish_reasons: tuple[FinishReason | str, ...] = ()
    error_policy: ErrorPolicy | None = None
    max_retries: int | None = None
    at_limit: AtLimit = AtLimit.STOP
    max_parallel_tools: int = 8
    repeated_calls: RepeatedCalls | None = RepeatedCalls()
    """When a call that is made again and again is noted and stops the run; None for never."""
    max_result_characters: int = DEFAULT_RESULT_CHARACTERS
    """Longer results of tools are cut, with a note; a tool may have a limit of its own."""
    model_retries: int = DEFAULT_MODEL_RETRIES
    """How often a model turn that failed before any output is asked again before the error policy
    applies."""
    cancel_grace: float = CANCEL_GRACE
    """Seconds that a cancelled tool, hook, model or driver has to end before it is abandoned."""
    ledger: CallLedger | None = None
    """Remembers tool calls across crashes; the app server gives it one."""
    completions: tuple["Completion", ...] = ()
    events: EventBus | None = None
    clock: Clock = SystemClock()
    new_id: IdFactory = new_id

    @classmethod
    def blank(cls) -> "AgentPlan":
        """A plan without limits and criteria."""
        return cls(
            has_base_criteria=False,
            max_steps=None,
            max_tokens=None,
            timeout=None,
            repeated_calls=None,
        )

    def with_tools(self, *tools: ToolLike | Tools) -> "AgentPlan":
        """With these tools added."""
        return replace(self, tools=(*self.tools, *tools))

    def with_hook(self, hook: Hook) -> "AgentPlan":
        """With this hook added."""
        return replace(self, hooks=(*self.hooks, hook))

    def with_criteria(self, *criteria: Criterion | ContinuationCriteria) -> "AgentPlan":
        """With these criteria added."""
        return replace(self, criteria=(*self.criteria, *criteria))

    def with_context_messages(self, *messages: Message) -> "AgentPlan":
        """With these messages behind the stable ones at the start of the prompt."""
        for message in messages:
            if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(
                    f"{message!r:.80} is no message; write Message.system(text)"
                )
        context = replace(self.context, messages=(*self.context.messages, *messages))
        return replace(self, context=context)

    def with_capability(self, capability: AgentCapability) -> "AgentPlan":
        """With a feature added."""
        configure = getattr(capability, "configure", None)
        if isinstance(capability, type):
            name = capability.__name__
            raise ConfigurationError(f"{name} is a class; give an instance: {name}(...)")
        if not callable(configure):
            raise ConfigurationError(
                f"{capability!r:.80} is not a capability; give an object with a configure(plan) "
                "method"
            )
        name = type(capability).__name__
        plan = capability.configure(self)
        if not isinstance(plan, AgentPlan):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"{name}.configure returned {plan!r}; return the changed plan")
        return replace(plan, capabilities=(*plan.capabilities, name))

    def when_complete(
        self, change: "Callable[[AgentPlan], AgentPlan]", *, order: int = 0
    ) -> "AgentPlan":
        """With a change that is made when the agent is built, and so sees the whole plan.

        Changes are made by order, lower first; those of one order as they were added.
        """
        return replace(self, completions=(*self.completions, Completion(change, order)))

    def complete(self) -> "AgentPlan":
        """The whole plan, with the changes that waited for it."""
        plan = replace(self, completions=(), events=self.events or EventBus())
        plan = adopt_driver_parts(plan)
        for completion in sorted(self.completions, key=lambda completion: completion.order):
            plan = completion.change(plan)
        return plan

    def asked_apart(
        self, given: "Model | str | None", owner: str
    ) -> "tuple[Model, ModelSettings] | None":
        """The model that a capability asks for itself: the given one, an object or a name, or the
        agent's own with the settings that belong to the model. None if the plan lacks both model
        and driver, whose errors are reported when it is assembled."""
        if given is not None:
            model = self.model_presets.model(given) if isinstance(given, str) else given
            return model, NO_SETTINGS
        model = self.model
        if model is None and self.llm_preset is not None:
            model = self.model_presets.model(self.llm_preset)
        if model is None and self.driver is not None:
            raise ConfigurationError(
                f"{owner} can't tell which model the agent's driver asks; name one, as in "
                f'{owner}(..., model="openai:gpt-5")'
            )
        own = ModelSettings(model=self.settings.model, extra_headers=self.settings.extra_headers)
        return None if model is None else (model, own)

    @property
    def budget(self) -> Budget:
        """The limits of this plan as a budget, for what it may pass on to subagents."""
        return Budget(
            steps=self.max_steps,
            tokens=self.max_tokens,
            seconds=self.timeout if self.cumulative_timeout is None else self.cumulative_timeout,
            cost=self.max_cost,
        )

    @property
    def effective_error_policy(self) -> ErrorPolicy:
        """The policy; a number of retries alone means that tool errors are retried."""
        if self.max_retries is None:
            return self.error_policy or ErrorPolicy.stop_on_any_error()
        if self.error_policy is None:
            return ErrorPolicy.retry_tool_errors(self.max_retries)
        return self.error_policy.with_max_retries(self.max_retries)

    def assemble(self) -> AgentLoop:
        """The loop that this plan describes; raises ``ConfigurationError`` if it can't be built."""
        if self.completions:
            return self.complete().assemble()
        plan = adopt_driver_parts(self)
        if plan is not self:
            return plan.assemble()
        if not isinstance(self.error_policy, ErrorPolicy | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{self.error_policy!r} is not an error policy; use for example "
                "ErrorPolicy.retry_tool_errors(3)"
            )
        if not isinstance(self.events, EventBus | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{self.events!r} is not an EventBus; listen with agent.wiretap"
            )
        if not isinstance(self.settings, ModelSettings):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{self.settings!r:.80} are no settings; write ModelSettings(temperature=0.2)"
            )
        if not isinstance(self.repeated_calls, RepeatedCalls | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"repeated_calls wants RepeatedCalls(note_at=3, stop_at=8) or None, got "
                f"{self.repeated_calls!r:.80}"
            )
        if self.context.response_format is not None:
            ResponseFormat.of(self.context.response_format)
        if not isinstance(self.model_retries, int) or self.model_retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"model_retries must be 0 or more, got {self.model_retries!r}")
        if not self.cancel_grace >= 0:
            raise ConfigurationError(f"cancel_grace must be 0 or more, got {self.cancel_grace!r}")
        _check(self.clock, "clock", "monotonic()")
        tools = Tools(self.tools)
        hooks = HookStack(self.hooks)
        executor = ToolExecutor(
            tools,
            hooks=hooks,
            clock=self.clock,
            max_parallel=self.max_parallel_tools,
            ledger=self.ledger,
            repeated_calls=self.repeated_calls,
            max_result_characters=self.max_result_characters,
        )
        return AgentLoop(
            self._driver(executor, hooks),
            ContinuationCriteria(*self._criteria(tools)),
            hooks=hooks,
            events=self.events,
            clock=self.clock,
            new_id=self.new_id,
            at_limit=_at_limit(self.at_limit),
            budget=self.budget,
            executor=executor,
            cancel_grace=self.cancel_grace,
            model_retries=self.model_retries,
        )

    def _driver(self, executor: ToolExecutor, hooks: HookStack) -> Driver:
        if self.driver is not None:
            if self.model is not None or self.llm_preset is not None:
                raise ConfigurationError(
                    "an agent takes a model or a driver: a driver asks the model it was made with"
                )
            _check(self.driver, "driver", "use_tools(state)")
            return bind_driver(self, executor, hooks)
        model = self.model
        if model is None and self.llm_preset is not None:
            model = self.model_presets.model(self.llm_preset)
        if model is None:
            raise ConfigurationError(
                "an agent needs a model or a driver: Agent(model, ...), with_llm_preset(name), or "
                "with_driver(driver); for tests see stepwell.testing"
            )
        _check(model, "model", "respond(request)")
        return ToolCallingDriver(
            model, executor, hooks=hooks, context=self.context, settings=self.settings
        )

    def _criteria(self, tools: Tools) -> "Iterator[Criterion | ContinuationCriteria]":
        for base in BASE_CRITERIA:
            if (criterion := base.make(self, tools)) is not None:
                yield criterion
        yield from self.criteria


def several(given: Iterable[Item], name: str) -> tuple[Item, ...]:
    """A list of things as a tuple; one thing alone is a mistake that is named."""
    if isinstance(given, str) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{name} wants a list, got {given!r:.80}; write {name}=[...]")
    return tuple(given)


def _check(part: object, kind: str, method: str) -> None:
    if isinstance(part, type):
        raise ConfigurationError(
            f"{part.__name__} is a class; give an instance, for example {part.__name__}(...)"
        )
    if not callable(getattr(part, method.partition("(")[0], None)):
        makes_one = callable(getattr(part, kind, None))
        hint = f"; call its {kind}(...) to get one" if makes_one else ""
        raise ConfigurationError(f"{part!r:.200} is not a {kind}; it has no {method} method{hint}")


def _at_limit(choice: str) -> AtLimit:
    try:
        return AtLimit(choice)
    except ValueError:
        raise ConfigurationError(
            f"unknown at_limit {choice!r}; known: {', '.join(AtLimit)}"
        ) from None
