"""``Agent``: a plan, built. The one object an application holds and runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

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
from stepwell.state import AgentState, RepeatedCalls
from stepwell.tools import ToolLike, Tools
from stepwell.tools.formatting import DEFAULT_RESULT_CHARACTERS
from stepwell.tools.registry import listed_tools

Event = TypeVar("Event", bound=AgentEvent)
Result = TypeVar("Result")
LATE_LISTENER_SECONDS = 5.0
"""How long the ``*_sync`` methods wait for async listeners before their event loop ends."""


class Agent:
    """A tool-calling agent. Build it once; run it as often and as much at once as you like.

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
        system_prompt: str | None = None,
        cached_context: CachedContext | None = None,
        response_format: ResponseFormat | Mapping[str, Any] | None = None,
        output: Any = None,
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
    ) -> None:
        check_integer(output_retries, "output_retries", least=0)
        if timeout is UNSET:
            timeout = DEFAULT_TIMEOUT if cumulative_timeout is None else None
        plan = AgentPlan(
            model=None if isinstance(model, str) else model,
            llm_preset=model if isinstance(model, str) else None,
            model_presets=model_presets,
            settings=settings,
            context=_context(cached_context, system_prompt, response_format),
            stop_on_finish_reasons=several(stop_on_finish_reasons, "stop_on_finish_reasons"),
            driver=driver,
            tools=listed_tools(tools),
            hooks=several(hooks, "hooks"),
            criteria=several(criteria, "criteria"),
            max_steps=max_steps,
            max_tokens=max_tokens,
            max_cost=max_cost,
            timeout=timeout,
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
        if output is not None:
            plan = TypedOutput(output, retries=output_retries).configure(plan)
        self._assemble(plan)

    @classmethod
    def from_plan(cls, plan: AgentPlan) -> "Agent":
        """The agent that a plan describes."""
        agent = cls.__new__(cls)
        agent._assemble(plan)
        return agent

    def _assemble(self, plan: AgentPlan) -> None:
        self.loop: AgentLoop = plan.assembled()
        self.plan = replace(plan, events=self.loop.events)

    # Running

    def new_state(self, text: str) -> AgentState:
        """A fresh conversation in which the user said this."""
        if not text:
            raise ConfigurationError("there is nothing to run: the text is empty")
        state = AgentState.empty(agent_id=self.plan.new_id(), at=self.plan.clock.now())
        return state.with_message(Message.user(text, id=self.plan.new_id()))

    async def run(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """Run to the end. Limits and errors end a run as data: see ``state.stop``."""
        return await self.loop.final_step(self._state(task), cancellation=cancellation)

    async def final_step(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """The same as ``run``, under the name that goes with ``next_step``."""
        return await self.run(task, cancellation=cancellation)

    async def next_step(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """The state after one more step, or after the decision not to take one."""
        return await self.loop.next_step(self._state(task), cancellation=cancellation)

    def has_next_step(self, state: AgentState) -> bool:
        """Whether ``next_step`` has something to do: the execution is not over and not paused."""
        return self.loop.has_next_step(state)

    def iterator(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AsyncIterator[AgentState]:
        """The state after each step; the last one is the result of the run."""
        return self.loop.iterator(self._state(task), cancellation=cancellation)

    async def stream(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AsyncIterator[RunPart]:
        """Text as it arrives, tools, steps, and last of all ``Final`` with the result."""
        parts: asyncio.Queue[RunPart | None] = asyncio.Queue()

        state = self._state(task)

        def tap(event: AgentEvent) -> None:
            part = part_of(event) if event.agent_id == state.agent_id else None
            if part is not None:
                parts.put_nowait(part)

        worker = asyncio.create_task(self._fill(parts, tap, state, cancellation))
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
        tap: Callable[[AgentEvent], None],
        state: AgentState,
        cancellation: Cancellation | None,
    ) -> None:
        """Run beside the consumer, at most one step ahead of it."""
        reached = state
        steps = 0 if state.is_finished else state.step_count
        try:
            states = self.loop.iterator(state, cancellation=cancellation, tap=tap)
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
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """``run`` for callers without an event loop."""
        return self._blocking("run", lambda: self.run(task, cancellation=cancellation))

    def final_step_sync(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """``final_step`` for callers without an event loop."""
        return self._blocking("final_step", lambda: self.run(task, cancellation=cancellation))

    def next_step_sync(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """``next_step`` for callers without an event loop."""
        return self._blocking("next_step", lambda: self.next_step(task, cancellation=cancellation))

    def _blocking(self, name: str, start: "Callable[[], Awaitable[Result]]") -> Result:
        _refuse_inside_loop(name, f"await agent.{name}(...)")

        async def run_and_settle() -> Result:
            try:
                return await start()
            finally:
                await self.events.settle(LATE_LISTENER_SECONDS)

        return run_event_loop(run_and_settle(), grace=self.plan.cancel_grace)

    def iterator_sync(
        self, task: str | AgentState, *, cancellation: Cancellation | None = None
    ) -> Iterator[AgentState]:
        """``iterator`` for callers without an event loop."""
        _refuse_inside_loop("iterator", "async for state in agent.iterator(...)")
        return self._iterate(self._state(task), cancellation)

    def _iterate(
        self, state: AgentState, cancellation: Cancellation | None
    ) -> Iterator[AgentState]:
        states = self.loop.iterator(state, cancellation=cancellation)
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

    def _state(self, task: str | AgentState) -> AgentState:
        if isinstance(task, str):
            return self.new_state(task)
        if isinstance(task, AgentState):  # pyright: ignore[reportUnnecessaryIsInstance]
            return task
        raise ConfigurationError(
            f"an agent runs a text or an AgentState, not {type(task).__name__}; for messages use "
            "AgentState.empty().with_messages(messages)"
        )


def _context(
    given: CachedContext | None,
    system_prompt: str | None,
    response_format: ResponseFormat | Mapping[str, Any] | None,
) -> CachedContext:
    context = CachedContext()
    if given is not None:
        context = check_kind(given, "cached_context", CachedContext)
    if system_prompt not in (None, ""):
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
