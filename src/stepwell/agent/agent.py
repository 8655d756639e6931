"""``Agent``: a plan, built. The one object an application holds and runs."""

import asyncio
import warnings
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from stepwell.agent.dynamic_prompt import PromptFunction, prompt_hooks
from stepwell.agent.output import TypedOutput
from stepwell.agent.parts import Final, RunPart, StepCompleted, part_of
from stepwell.agent.plan import (
    DEFAULT_MODEL_RETRIES,
    NO_PRESETS,
    AgentCapability,
    AgentPlan,
    several,
)
from stepwell.clock import Clock, SystemClock
from stepwell.continuation import Cancellation
from stepwell.criteria import ContinuationCriteria, Criterion, ErrorPolicy
from stepwell.criteria.limits import DEFAULT_MAX_STEPS, DEFAULT_MAX_TOKENS, DEFAULT_TIMEOUT
from stepwell.drivers import Driver
from stepwell.errors import ConfigurationError, SyncInsideLoopError
from stepwell.events import AgentEvent, EventBus, Unsubscribe
from stepwell.foreign import CANCEL_GRACE, close_event_loop, run_event_loop
from stepwell.hooks import Hook
from stepwell.ids import IdFactory, new_id
from stepwell.loop import AgentLoop, AtLimit, cut_off_together
from stepwell.messages import FinishReason, Message
from stepwell.models import CachedContext, Model, ModelPresets, ModelSettings, ResponseFormat
from stepwell.models.settings import NO_SETTINGS
from stepwell.parameters import check_integer, check_kind, check_text
from stepwell.run_context import NO_CONTEXT, Deps, Output, Principal, RunContext
from stepwell.state import AgentState, RepeatedCalls
from stepwell.tools import ToolLike, Tools
from stepwell.tools.registry import listed_tools
from stepwell.tools.result_text import DEFAULT_RESULT_CHARACTERS

Event = TypeVar("Event", bound=AgentEvent)
Result = TypeVar("Result")
LATE_LISTENER_SECONDS = 5.0
"""How long the ``*_sync`` methods wait for async listeners before their event loop ends."""


class Agent(Generic[Deps, Output]):
    """A tool-calling agent. Build it once; run it as often and as much at once as you like.

    ``Agent[Deps, Output]``: type checkers take the type of ``state.output`` from ``output_type``.

    >>> from stepwell.testing import ScriptedModel
    >>> agent = Agent(ScriptedModel(["Four."]), system_prompt="You can count.")
    >>> state = agent.run_sync("What is 2 + 2?")
    >>> state.final_response, state.stop.stop_reason
    ('Four.', <StopReason.COMPLETED: 'completed'>)
    """

    def __init__(
        self,
        model: Model | str | None = None,
        *,
        tools: Iterable[ToolLike | Tools] | Tools = (),
        capabilities: Iterable[AgentCapability] = (),
        system_prompt: str | PromptFunction | None = None,
        cached_context: CachedContext | None = None,
        response_format: ResponseFormat | Mapping[str, Any] | None = None,
        output_type: type[Output] | Any = None,
        output_retries: int = 2,
        settings: ModelSettings = NO_SETTINGS,
        model_presets: ModelPresets = NO_PRESETS,
        max_steps: int | None = DEFAULT_MAX_STEPS,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        max_cost: float | None = None,
        timeout: float | UnsetType | None = UNSET,
        cumulative_timeout: float | None = None,
        error_policy: ErrorPolicy | None = None,
        max_retries: int | None = None,
        model_retries: int = DEFAULT_MODEL_RETRIES,
        stop_on_finish_reasons: Iterable[FinishReason | str] = (),
        repeated_calls: RepeatedCalls | None = RepeatedCalls(),  # noqa: B008 - a frozen value
        at_limit: AtLimit | str = AtLimit.STOP,
        criteria: Iterable[Criterion | ContinuationCriteria] = (),
        hooks: Iterable[Hook] = (),
        driver: Driver | None = None,
        events: EventBus | None = None,
        max_parallel_tools: int = 8,
        max_result_characters: int = DEFAULT_RESULT_CHARACTERS,
        cancel_grace: float = CANCEL_GRACE,
        clock: Clock | None = None,
        new_id: IdFactory = new_id,
        **renamed: Any,
    ) -> None:
        output_type = _output_type_of(renamed) if renamed else output_type
        check_integer(output_retries, "output_retries", least=0)
        plan = AgentPlan(
            model=None if isinstance(model, str) else model,
            llm_preset=model if isinstance(model, str) else None,
            model_presets=model_presets,
            settings=settings,
            context=_context(cached_context, system_prompt, response_format),
            stop_on_finish_reasons=several(stop_on_finish_reasons, "stop_on_finish_reasons"),
            driver=driver,
            tools=listed_tools(tools),
            hooks=(*several(hooks, "hooks"), *prompt_hooks(system_prompt)),
            criteria=several(criteria, "criteria"),
            max_steps=max_steps,
            max_tokens=max_tokens,
            max_cost=max_cost,
            timeout=_timeout(timeout, cumulative_timeout),
            cumulative_timeout=cumulative_timeout,
            error_policy=error_policy,
            max_retries=max_retries,
            repeated_calls=repeated_calls,
            model_retries=model_retries,
            at_limit=at_limit,  # pyright: ignore[reportArgumentType] - checked when assembled
            max_parallel_tools=max_parallel_tools,
            max_result_characters=max_result_characters,
            cancel_grace=cancel_grace,
            events=events,
            clock=clock or SystemClock(),
            new_id=new_id,
        )
        for capability in several(capabilities, "capabilities"):
            plan = plan.with_capability(capability)
        if output_type is not None:
            plan = TypedOutput(output_type, retries=output_retries).configure(plan)
        self._assemble(plan)

    @classmethod
    def from_plan(cls, plan: AgentPlan) -> "Agent":
        """The agent that a plan describes."""
        agent = cls.__new__(cls)
        agent._assemble(plan)
        return agent

    def _assemble(self, plan: AgentPlan) -> None:
        self.loop: AgentLoop = plan.assemble()
        self.plan = replace(plan, events=self.loop.events)

    # Running

    def new_state(self, text: str) -> AgentState[Output]:
        """A fresh conversation in which the user said this."""
        if not text:
            raise ConfigurationError("there is nothing to run: the text is empty")
        state = AgentState.empty(agent_id=self.plan.new_id(), at=self.plan.clock.now())
        return state.with_message(Message.user(text, id=self.plan.new_id()))

    async def run(
        self,
        task: str | AgentState,
        *,
        principal: Principal | None = None,
        deps: Deps | None = None,
        cancellation: Cancellation | None = None,
    ) -> AgentState[Output]:
        """Run to the end. Limits and errors end a run as data: see ``state.stop``."""
        return await self.loop.final_step(
            self._state(task), cancellation=cancellation, context=self._context(principal, deps)
        )

    async def final_step(
        self,
        task: str | AgentState,
        *,
        principal: Principal | None = None,
        deps: Deps | None = None,
        cancellation: Cancellation | None = None,
    ) -> AgentState[Output]:
        """The same as ``run``, under the name that goes with ``next_step``."""
        return await self.run(task, principal=principal, deps=deps, cancellation=cancellation)

    async def next_step(
        self,
        task: str | AgentState,
        *,
        principal: Principal | None = None,
        deps: Deps | None = None,
        cancellation: Cancellation | None = None,
    ) -> AgentState[Output]:
        """The state after one more step, or after the decision not to take one."""
        state = self._state(task)
        run = state.execution
        if run is not None and run.is_under_way:  # it has its context since it began
            return await self.loop.next_step(state, cancellation=cancellation)
        context = self._context(principal, deps)
        return await self.loop.next_step(state, cancellation=cancellation, context=context)

    def has_next_step(self, state: AgentState) -> bool:
        """Whether ``next_step`` has something to do: the execution is not over and not paused."""
        return self.loop.has_next_step(state)

    def iterator(
        self,
        task: str | AgentState,
        *,
        principal: Principal | None = None,
        deps: Deps | None = None,
        cancellation: Cancellation | None = None,
    ) -> AsyncIterator[AgentState[Output]]:
        """The state after each step; the last one is the result of the run."""
        return self.loop.iterator(
            self._state(task), cancellation=cancellation, context=self._context(principal, deps)
        )

    async def stream(
        self,
        task: str | AgentState,
        *,
        principal: Principal | None = None,
        deps: Deps | None = None,
        cancellation: Cancellation | None = None,
    ) -> AsyncIterator[RunPart]:
        """Text as it arrives, tools, steps, and last of all ``Final`` with the result."""
        parts: asyncio.Queue[RunPart | None] = asyncio.Queue()

        state = self._state(task)

        def tap(event: AgentEvent) -> None:
            part = part_of(event) if event.agent_id == state.agent_id else None
            if part is not None:
                parts.put_nowait(part)

        worker = asyncio.create_task(
            self._fill(
                parts,
                state,
                partial(
                    self.loop.iterator,
                    cancellation=cancellation,
                    tap=tap,
                    context=self._context(principal, deps),
                ),
            )
        )
        try:
            while (part := await parts.get()) is not None:
                yield part
                parts.task_done()
            await worker
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

    async def _fill(
        self,
        parts: "asyncio.Queue[RunPart | None]",
        state: AgentState,
        start: "Callable[[AgentState], AsyncGenerator[AgentState, None]]",
    ) -> None:
        """Run beside the consumer, at most one step ahead of it."""
        reached = state
        steps = 0 if state.is_finished else state.step_count
        try:
            states = start(state)
            async with cut_off_together(states):
                async for reached in states:
                    if reached.step_count > steps:
                        steps = reached.step_count
                        parts.put_nowait(StepCompleted(reached))
                        await parts.join()
            parts.put_nowait(Final(reached))
        finally:
            parts.put_nowait(None)

    # The same for callers without an event loop

    def run_sync(
        self,
        task: str | AgentState,
        *,
        principal: Principal | None = None,
        deps: Deps | None = None,
        cancellation: Cancellation | None = None,
    ) -> AgentState[Output]:
        """``run`` for callers without an event loop."""
        return self._run_blocking(
            "run",
            lambda: self.run(task, principal=principal, deps=deps, cancellation=cancellation),
        )

    def final_step_sync(
        self,
        task: str | AgentState,
        *,
        principal: Principal | None = None,
        deps: Deps | None = None,
        cancellation: Cancellation | None = None,
    ) -> AgentState[Output]:
        """``final_step`` for callers without an event loop."""
        return self._run_blocking(
            "final_step",
            lambda: self.run(task, principal=principal, deps=deps, cancellation=cancellation),
        )

    def next_step_sync(
        self,
        task: str | AgentState,
        *,
        principal: Principal | None = None,
        deps: Deps | None = None,
        cancellation: Cancellation | None = None,
    ) -> AgentState[Output]:
        """``next_step`` for callers without an event loop."""
        return self._run_blocking(
            "next_step",
            lambda: self.next_step(task, principal=principal, deps=deps, cancellation=cancellation),
        )

    def _run_blocking(self, name: str, start: "Callable[[], Awaitable[Result]]") -> Result:
        _refuse_inside_loop(name, f"await agent.{name}(...)")

        async def run_and_settle() -> Result:
            try:
                return await start()
            finally:
                await self.events.settle(LATE_LISTENER_SECONDS)

        return run_event_loop(run_and_settle(), grace=self.plan.cancel_grace)

    def iterator_sync(
        self,
        task: str | AgentState,
        *,
        principal: Principal | None = None,
        deps: Deps | None = None,
        cancellation: Cancellation | None = None,
    ) -> Iterator[AgentState[Output]]:
        """``iterator`` for callers without an event loop."""
        _refuse_inside_loop("iterator", "async for state in agent.iterator(...)")
        return self._iterate(
            self.loop.iterator(
                self._state(task), cancellation=cancellation, context=self._context(principal, deps)
            )
        )

    def _iterate(self, states: "AsyncGenerator[AgentState, None]") -> Iterator[AgentState[Output]]:
        runner = asyncio.Runner()
        try:
            while (state_or_end := runner.run(_next_or_none(states))) is not None:
                yield state_or_end
            runner.run(self.events.settle(LATE_LISTENER_SECONDS))
        finally:
            close_event_loop(runner, grace=self.plan.cancel_grace)

    # Listening

    @property
    def events(self) -> EventBus:
        """The bus this agent's events go to."""
        return self.loop.events

    def on_event(
        self, event_type: type[Event], listener: Callable[[Event], Awaitable[None] | None]
    ) -> Unsubscribe:
        """Call the listener for events of that class; returns a function that ends it."""
        return self.events.on_event(event_type, listener)

    def wiretap(self, listener: Callable[[AgentEvent], Awaitable[None] | None]) -> Unsubscribe:
        """Call the listener for every event; returns a function that ends it."""
        return self.events.wiretap(listener)

    def with_events(self, events: EventBus) -> "Agent":
        """The same agent, telling another bus."""
        return Agent.from_plan(replace(self.plan, events=events))

    def _context(self, principal: Principal | None, deps: Any) -> RunContext[Any]:
        if principal is not None:
            check_kind(principal, "principal", Principal)
        given = principal is not None or deps is not None
        context = RunContext(principal=principal, deps=deps) if given else NO_CONTEXT
        self.loop.tools.check_context(context)
        return context

    def _state(self, task: str | AgentState) -> AgentState[Output]:
        if isinstance(task, str):
            return self.new_state(task)
        if isinstance(task, AgentState):  # pyright: ignore[reportUnnecessaryIsInstance]
            return task
        raise ConfigurationError(
            f"an agent runs a text or an AgentState, not {type(task).__name__}; for messages use "
            "AgentState.empty().with_messages(messages)"
        )


def _timeout(given: float | UnsetType | None, cumulative: float | None) -> float | None:
    if given is UNSET:
        return DEFAULT_TIMEOUT if cumulative is None else None
    return given


def _output_type_of(renamed: dict[str, Any]) -> Any:
    """The value of ``output``, which was the name of ``output_type`` up to version 0.1."""
    unknown = [name for name in renamed if name != "output"]
    if unknown:
        raise TypeError(f"Agent() got an unexpected keyword argument {unknown[0]!r}")
    warnings.warn("Agent(output=) is now output_type=", DeprecationWarning, stacklevel=3)
    return renamed["output"]


def _context(
    given: CachedContext | None,
    system_prompt: str | PromptFunction | None,
    response_format: ResponseFormat | Mapping[str, Any] | None,
) -> CachedContext:
    context = CachedContext()
    if given is not None:
        context = check_kind(given, "cached_context", CachedContext)
    if system_prompt not in (None, "") and not callable(system_prompt):
        prompt = Message.system(check_text(system_prompt, "system_prompt"))
        context = replace(context, messages=(*context.messages, prompt))
    if response_format is not None:
        context = replace(context, response_format=response_format)
    return context


async def _next_or_none(states: AsyncIterator[AgentState]) -> AgentState | None:
    return await anext(states, None)


def _refuse_inside_loop(name: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SyncInsideLoopError(
        f"{name}_sync() was called inside a running event loop, which it would block; use "
        f"`{instead}`"
    )
