"""Agents inside a tool call: the plan of a child, derived from its parent's, and its run, which
spends what the parent has left and ends when the parent's call does.
"""

import asyncio
from collections.abc import Iterable

from msgspec.structs import replace

from stepwell.agent.agent import Agent
from stepwell.agent.metadata_keys import BINDS_SUBAGENTS
from stepwell.agent.plan import AgentPlan
from stepwell.continuation import (
    Cancellation,
    ContinuationDecision,
    ContinuationEvaluation,
    StopReason,
)
from stepwell.drivers import BindableDriver, Driver
from stepwell.errors import ConfigurationError
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.loop import AtLimit
from stepwell.messages import Message, Usage
from stepwell.models import CachedContext
from stepwell.state import UNLIMITED, AgentState, Budget
from stepwell.tools import ToolContext, ToolLike

SECONDS_TO_END = 5.0
"""How long a child may take to end in good order after its parent's call was ended."""

SHORTEST_TIME = 0.001
"""A child without any time left begins all the same, and says that it had none."""

FIRST, LAST = 10_000, -10_000
_PURSE, _SHARE = "purse", "share"

Spent = tuple[int, float]
"""Tokens and cost."""


class Purse:
    """What an agent and its children spend in one step, of what the agent had left before it."""

    def __init__(self, step_number: int, had: Budget, share: "SharedBudget | None") -> None:
        self.step_number = step_number
        self._had = had
        self._share = share
        self._turns: Spent = (0, 0.0)
        self._shares: list[SharedBudget] = []

    @classmethod
    def of(cls, state: AgentState) -> "Purse":
        """The purse of the step in flight, the same for all its calls."""
        shared, number = state.scope.shared, state.step_number
        purse = shared.get(_PURSE)
        if not isinstance(purse, Purse) or purse.step_number != number:
            share = shared.get(_SHARE)
            share = share if isinstance(share, SharedBudget) else None
            purse = shared[_PURSE] = cls(number, state.budget_left, share)
            if share is not None:
                share.in_flight = purse
        return purse

    def add(self, share: "SharedBudget") -> None:
        """One more child spends of this."""
        self._shares.append(share)

    def note_turn(self, tokens: int, cost: float) -> None:
        """The agent itself spent that much, which its state does not know before the step ends."""
        self._turns = (self._turns[0] + tokens, self._turns[1] + cost)

    @property
    def spent(self) -> Spent:
        """Tokens and cost of the step so far, with those of all children."""
        all_spent = [self._turns, *(share.spent for share in self._shares)]
        return sum(tokens for tokens, _ in all_spent), sum(cost for _, cost in all_spent)

    @property
    def left(self) -> Budget:
        """What is left for another child."""
        tokens, cost = self.spent
        return self._had.after(usage=Usage(input_tokens=tokens), cost=cost)

    def why_empty(self) -> tuple[StopReason, str] | None:
        """The limit that is reached, here or further up; None while something is left."""
        tokens, cost = self.spent
        had = self._had
        if had.tokens is not None and tokens >= had.tokens:
            words = f"the parent and its subagents spent {tokens} of the {had.tokens} tokens left"
            return StopReason.TOKEN_LIMIT, words
        if had.cost is not None and cost >= had.cost:
            words = f"the parent and its subagents spent {cost:g} of the cost of {had.cost:g} left"
            return StopReason.COST_LIMIT, words
        return None if self._share is None else self._share.purse.why_empty()


class SharedBudget:
    """Ends a child when it and the other children have spent what their parent had left."""

    def __init__(self, purse: Purse, begun_with: AgentState) -> None:
        self.purse = purse
        self.in_flight: Purse | None = None
        """What the step of this child spends, when it has children of its own."""
        self._recorded: Spent = (0, 0.0)
        self._before: Spent = (begun_with.usage.total_tokens, begun_with.cost)
        purse.add(self)

    @property
    def spent(self) -> Spent:
        """Tokens and cost since the call of the parent began."""
        tokens, cost = (0, 0.0) if self.in_flight is None else self.in_flight.spent
        return self._recorded[0] + tokens, self._recorded[1] + cost

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """Forbid once the purse is empty."""
        reached = self.purse.why_empty()
        stop, reason = reached or (None, "the parent's budget is not spent")
        return ContinuationEvaluation(
            criterion="SharedBudget",
            decision=ContinuationDecision.FORBID if stop else ContinuationDecision.ALLOW,
            reason=reason,
            context={"own_tokens": self.spent[0], "tokens": self.purse.spent[0]},
            stop_reason=stop,
        )

    def hooks(self) -> tuple[Hook, ...]:
        """They let the child's own children find this, and tell the others what it spends."""
        return (
            make_hook(HookTrigger.BEFORE_STEP, self._opened, priority=FIRST, name="SharedBudget"),
            make_hook(HookTrigger.AFTER_STEP, self._noted, priority=FIRST, name="SharedBudget"),
        )

    def _opened(self, context: HookContext) -> None:
        context.state.scope.shared[_SHARE] = self

    def _noted(self, context: HookContext) -> None:
        state = context.state
        self.in_flight = None
        self._recorded = (
            state.usage.total_tokens - self._before[0],
            state.cost - self._before[1],
        )


def with_turns_noted(plan: AgentPlan) -> AgentPlan:
    """The plan of an agent whose children are given what its model turn left, not what was there
    before it."""

    def noted(context: HookContext) -> None:
        if context.response is not None:
            spent = context.response.usage.total_tokens
            Purse.of(context.state).note_turn(spent, context.response.cost)

    hook = make_hook(HookTrigger.AFTER_INFERENCE, noted, priority=LAST, name="SharedBudget")
    return plan.with_hook(hook)


def child_plan(
    parent: AgentPlan,
    *,
    instructions: Iterable[Message],
    tools: Iterable[ToolLike],
    budget: Budget = UNLIMITED,
) -> AgentPlan:
    """The plan of a child that answers with the parent's model, under the parent's rules.

    What parents do before tools holds for the child as well, since denials flow down; of their
    other hooks only those that are inherited. Limits are those of the budget.
    """
    return AgentPlan(
        model=parent.model,
        llm_preset=parent.llm_preset,
        model_presets=parent.model_presets,
        driver=None if parent.driver is None else _childs_driver(parent.driver),
        tools=tuple(tools),
        context=CachedContext(messages=tuple(instructions)),
        settings=replace(parent.settings, tool_choice=None),
        hooks=tuple(_inherited(parent.hooks)),
        max_steps=budget.steps,
        max_tokens=budget.tokens,
        max_cost=budget.cost,
        timeout=None if budget.seconds is None else max(budget.seconds, SHORTEST_TIME),
        error_policy=parent.error_policy,
        max_retries=parent.max_retries,
        at_limit=AtLimit.STOP,
        max_parallel_tools=parent.max_parallel_tools,
        events=parent.events,
        clock=parent.clock,
        new_id=parent.new_id,
    )


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


def budget_for(context: ToolContext, own: Budget | None, begun_with: AgentState) -> Budget:
    """The child's own budget, within what its parent has left; both count from its beginning, so
    what it spent before it was paused comes on top of what is left."""
    spent = Budget(
        steps=begun_with.step_count,
        tokens=begun_with.usage.total_tokens,
        seconds=0.0,
        cost=begun_with.cost,
    )
    left = replace(Purse.of(context.state).left, seconds=context.budget_left.seconds)
    return (own or UNLIMITED).capped_by(left.plus(spent))


def child_agent(plan: AgentPlan, state: AgentState, context: ToolContext) -> Agent:
    """The child that runs this state within the call of its parent, and spends with the others."""
    shared = SharedBudget(Purse.of(context.state), state)
    hooks = (*plan.hooks, *shared.hooks())
    return Agent.from_plan(replace(plan.with_criteria(shared), hooks=hooks))


async def run_child(agent: Agent, state: AgentState, context: ToolContext) -> AgentState:
    """Run the child inside the call of its parent.

    When the call is ended, by a cancellation or the deadline, the child is cancelled and ends in
    good order, so that its last event is told and what it spent is known.
    """
    owner = asyncio.current_task()
    cancelled_before = 0 if owner is None else owner.cancelling()
    cancellation = Cancellation()
    run = asyncio.create_task(agent.run(state, cancellation=cancellation))
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
        if run.cancelled() or not by_the_run_alone:
            raise
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


def _inherited(hooks: Iterable[Hook]) -> Iterable[Hook]:
    for hook in hooks:
        if hook.inherited:
            yield hook
        elif HookTrigger.BEFORE_TOOL in hook.triggers:
            yield replace(hook, triggers=frozenset({HookTrigger.BEFORE_TOOL}))
