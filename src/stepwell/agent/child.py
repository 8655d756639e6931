"""Agents inside a tool call: the plan of a child, derived from its parent's, and its run, which
spends what the parent has left and ends when the parent's call does. A child that waits for a
person makes its parent wait, and both go on with the answer.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from stepwell.agent.agent import Agent
from stepwell.agent.budget_pool import BudgetPool, SharedBudget, with_turns_noted
from stepwell.agent.metadata_keys import BINDS_SUBAGENTS
from stepwell.agent.plan import AgentPlan
from stepwell.continuation import AgentStatus, Cancellation
from stepwell.drivers import BindableDriver, Driver
from stepwell.errors import ConfigurationError
from stepwell.events import SubagentCompleted, SubagentSpawning
from stepwell.hooks import Hook, HookTrigger
from stepwell.messages import Message
from stepwell.models import CachedContext
from stepwell.state import UNLIMITED, AgentState, Budget, Question
from stepwell.state.given_state import state_of
from stepwell.tools import InputRequired, ToolContext, ToolLike, Tools

SECONDS_TO_END = 5.0
"""How long a child may take to end in good order after its parent's call was ended."""

LONGEST_PROMPT = 100
"""Characters of a child's prompt in the event that it begins: its first message has all of it."""

SHORTEST_TIME = 1e-9
"""A child without any time left begins all the same, and says that it had none."""


NOT_INHERITED = {
    "capabilities": "the child has the tools and hooks that they made, not their names",
    "criteria": "they judge the parent's work",
    "has_base_criteria": "a child always ends by itself",
    "cumulative_timeout": "the budget limits the child's time",
    "stop_on_finish_reasons": "they are about the parent's answer",
    "at_limit": "a child that reaches a limit stops, and its parent decides",
    "completions": "the parent's plan is complete",
}
"""Fields of a plan that a child has at their defaults, and why. All others it has from its parent,
some of them changed: see ``child_plan``."""


@runtime_checkable
class PlanBoundTool(Protocol):
    """A tool that works with the plan of its agent; a child gets it bound to its own plan."""

    def bound_to(self, plan: AgentPlan) -> ToolLike:
        """The same tool for the agent of that plan."""
        ...


def child_plan(
    parent: AgentPlan,
    *,
    instructions: Iterable[Message],
    tools: Iterable[ToolLike],
    budget: Budget = UNLIMITED,
) -> AgentPlan:
    """The plan of a child that answers with the parent's model, under the parent's rules.

    What parents do before tools holds for the child as well, since denials flow down; of their
    other hooks only those that are inherited. Limits are those of the budget. Tools that belong to
    a plan are bound to the child's, so that they give on no more than it has.
    """
    own = AgentPlan()
    plan = replace(
        parent,
        **{field: getattr(own, field) for field in NOT_INHERITED},
        driver=None if parent.driver is None else _childs_driver(parent.driver),
        tools=tuple(tools),
        context=CachedContext(messages=tuple(instructions)),
        settings=replace(parent.settings, tool_choice=None),
        hooks=tuple(_inherited_hooks(parent.hooks)),
        max_steps=budget.steps,
        max_tokens=budget.tokens,
        max_cost=budget.cost,
        timeout=None if budget.seconds is None else max(budget.seconds, SHORTEST_TIME),
    )
    return replace(plan, tools=tuple(_bind_tool(tool, plan) for tool in plan.tools))


def child_state(parent: AgentPlan, prompt: str, context: ToolContext) -> AgentState:
    """A child's conversation: the prompt, and of the parent's metadata only what binds it."""
    state = AgentState.empty(
        agent_id=parent.new_id(),
        parent_agent_id=context.state.agent_id,
        at=parent.clock.now(),
    )
    kept = context.state.metadata
    binding = {key: kept[key] for key in BINDS_SUBAGENTS if key in kept}
    return state.with_message(Message.user(prompt, id=parent.new_id())).with_metadata(binding)


def resumed_child(context: ToolContext) -> AgentState | None:
    """The child that waited, with the answer to what it asked, if this call goes on with one. A
    call that a person merely approved starts again."""
    resumed = context.resumed
    child = None if resumed is None else state_of(resumed.kept)
    if resumed is None or child is None:
        return None
    asked = _open_question(child)
    return child if asked is None else child.with_answer(asked, resumed.answer)


def question_of(child: AgentState, *, kind: str, name: str) -> InputRequired | None:
    """What the parent asks for a child that waits: its questions are asked one by one. The details
    say who asks; ``kind`` is what the child is called, such as ``subagent``."""
    asked = _open_question(child)
    if asked is None:
        return None
    who = {kind: name, "asked_by": asked.tool_name}
    comes_from_below = isinstance(asked.kept, AgentState)  # Then the details know better.
    return InputRequired(
        prompt=f"{name}: {asked.prompt}",
        kind=asked.kind,
        details={**who, **asked.details} if comes_from_below else {**asked.details, **who},
        resumes=True,
        kept=child,
    )


def _open_question(child: AgentState) -> Question | None:
    if child.status is not AgentStatus.PAUSED:
        return None
    return next((asked for asked in child.pending if asked.call_id is not None), None)


def budget_for(context: ToolContext, own: Budget | None, begun_with: AgentState) -> Budget:
    """The child's own budget, within what its parent has left; both count from its beginning, so
    what it spent before it was paused comes on top of what is left."""
    spent = Budget(
        steps=begun_with.step_count,
        tokens=begun_with.usage.total_tokens,
        seconds=0.0,
        cost=begun_with.cost,
    )
    left = replace(BudgetPool.of(context.state).left, seconds=context.budget_left.seconds)
    return (own or UNLIMITED).capped_by(left.plus(spent))


async def run_reported_child(
    plan: AgentPlan, state: AgentState, context: ToolContext, *, name: str, max_depth: int
) -> AgentState:
    """Run the child, and tell listeners that it begins and how it ended."""
    emitter, depth = context.state.scope.emitter, BudgetPool.of(context.state).depth
    emitter.emit(
        SubagentSpawning,
        name=name,
        prompt=next((message.text for message in state.messages), "")[:LONGEST_PROMPT],
        depth=depth,
        max_depth=max_depth,
        call_id=context.call_id,
        child_agent_id=state.agent_id,
    )
    ended = await run_child(plan, state, context, name=name)
    emitter.emit(
        SubagentCompleted,
        name=name,
        status=ended.status,
        steps=ended.step_count,
        usage=ended.usage,
        depth=depth,
        max_depth=max_depth,
        call_id=context.call_id,
        child_agent_id=ended.agent_id,
    )
    return ended


async def run_child(
    plan: AgentPlan, state: AgentState, context: ToolContext, *, name: str
) -> AgentState:
    """Run the child inside the call of its parent, and have the host of the run record it.

    When the call is ended, by a cancellation or the deadline, the child is cancelled and ends in
    good order, so that it emits its last event and its usage is known. One that does not end
    is cut off, and the result is the state after its last step.
    """
    shared = SharedBudget(BudgetPool.of(context.state), state)
    plan = with_turns_noted(plan).with_criteria(shared)
    agent = Agent.from_plan(replace(plan, hooks=(*plan.hooks, *shared.hooks())))
    owner = asyncio.current_task()
    cancelled_before = 0 if owner is None else owner.cancelling()
    cancellation, reached = Cancellation(), state

    async def to_the_end() -> AgentState:
        nonlocal reached
        scope = context.state.scope
        attempt, tap = None, scope.emitter.tap
        if scope.attempt is not None:
            attempt = scope.attempt.for_subagent(name=name, call_id=context.call_id)
            if reached.execution is None or reached.is_finished:
                reached = reached.with_execution_started(plan.new_id(), plan.clock.now())
            await attempt.begin(reached)
        steps = agent.loop.iterator(
            reached,
            cancellation=cancellation,
            tap=tap,
            attempt=attempt,
            context=context.state.context,
        )
        async for after_step in steps:
            reached = after_step
        if attempt is not None:
            await attempt.end(reached)
        return reached

    run = asyncio.create_task(to_the_end())
    run.add_done_callback(_look_at)
    try:
        await asyncio.wait([run])
    except asyncio.CancelledError:
        signal = context.guard.signal
        why = "" if signal is None else f": {signal.words}"
        cancellation.request(f"the call that runs this agent was ended{why}", source="parent")
        await _end(run)
        times = 0 if owner is None else owner.cancelling() - cancelled_before
        by_the_run_alone = context.is_cancelled and times <= 1
        if not by_the_run_alone:
            raise
        if run.cancelled():
            return reached
    return run.result()


async def _end(run: "asyncio.Task[AgentState]") -> None:
    """Wait until it ended by itself; if that takes too long, or is not waited for, cancel it."""
    try:
        await asyncio.wait([run], timeout=SECONDS_TO_END)
    finally:
        if not run.done():
            run.cancel()
            await asyncio.wait([run])


def _look_at(run: "asyncio.Task[AgentState]") -> None:
    """Nobody may be left to ask how it ended; asyncio would report that as a mistake."""
    if not run.cancelled():
        run.exception()


def _bind_tool(tool: "ToolLike | Tools", plan: AgentPlan) -> "ToolLike | Tools":
    return tool.bound_to(plan) if isinstance(tool, PlanBoundTool) else tool


def _childs_driver(driver: Driver) -> Driver:
    for_child = getattr(driver, "for_child", None)
    if callable(for_child):
        return for_child()  # pyright: ignore[reportReturnType] - a driver's own word for it
    if isinstance(driver, BindableDriver):
        return driver
    raise ConfigurationError(
        f"{type(driver).__name__} can't drive a subagent: it belongs to its agent's tools. Give "
        "the driver a for_child() method, or the agent a model instead of a driver"
    )


def _inherited_hooks(hooks: Iterable[Hook]) -> Iterable[Hook]:
    for hook in hooks:
        if hook.inherited:
            yield hook
        elif HookTrigger.BEFORE_TOOL in hook.triggers:
            yield replace(hook, triggers=frozenset({HookTrigger.BEFORE_TOOL}))
