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
from stepwell.messages import Message
from stepwell.models import CachedContext
from stepwell.state import UNLIMITED, AgentState, Budget
from stepwell.tools import ToolContext, ToolLike, Tools

SECONDS_TO_END = 5.0
"""How long a child may take to end in good order after its parent's call was ended."""

_PURSE = "purse"


class Purse:
    """What the children of one step may spend together: what their parent had left."""

    def __init__(self, step_number: int, left: Budget) -> None:
        self.step_number = step_number
        self.left = left
        self._spent: dict[str, tuple[int, float]] = {}

    @classmethod
    def of(cls, context: ToolContext) -> "Purse":
        """The purse of the step in flight, the same for all its calls."""
        scope, number = context.state.scope, context.state.step_number
        purse = scope.shared.get(_PURSE)
        if not isinstance(purse, Purse) or purse.step_number != number:
            purse = scope.shared[_PURSE] = cls(number, context.budget_left)
        return purse

    def note(self, child: str, tokens: int, cost: float) -> None:
        """A child has spent that much since its call began."""
        self._spent[child] = (tokens, cost)

    def spent_by_others(self, child: str) -> tuple[int, float]:
        """Tokens and cost of the other children of the step."""
        others = [spent for name, spent in self._spent.items() if name != child]
        return sum(tokens for tokens, _ in others), sum(cost for _, cost in others)


class SharedBudget:
    """Ends a child when it and the other children have spent what their parent had left."""

    def __init__(self, purse: Purse, begun_with: AgentState) -> None:
        self._purse = purse
        self._tokens_before = begun_with.usage.total_tokens
        self._cost_before = begun_with.cost

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """Forbid once the purse is empty."""
        left = self._purse.left
        tokens, cost = self._purse.spent_by_others(state.agent_id)
        own_tokens, own_cost = self._own(state)
        reason, stop = "the parent's budget is not spent", None
        if left.tokens is not None and tokens + own_tokens >= left.tokens:
            stop = StopReason.TOKEN_LIMIT
            reason = (
                f"this agent spent {own_tokens} tokens and those beside it {tokens}, of the "
                f"{left.tokens} that their parent had left"
            )
        elif left.cost is not None and cost + own_cost >= left.cost:
            stop = StopReason.COST_LIMIT
            reason = (
                f"this agent spent {own_cost:g} and those beside it {cost:g}, of the {left.cost:g} "
                "that their parent had left"
            )
        return ContinuationEvaluation(
            criterion="SharedBudget",
            decision=ContinuationDecision.FORBID if stop else ContinuationDecision.ALLOW,
            reason=reason,
            context={"own_tokens": own_tokens, "tokens_beside": tokens},
            stop_reason=stop,
        )

    def note(self, context: HookContext) -> None:
        """After each step the others learn what this child has spent."""
        self._purse.note(context.state.agent_id, *self._own(context.state))

    def _own(self, state: AgentState) -> tuple[int, float]:
        tokens = state.usage.total_tokens - self._tokens_before
        return tokens, state.cost - self._cost_before


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
        timeout=budget.seconds,
        error_policy=parent.error_policy,
        max_retries=parent.max_retries,
        at_limit=AtLimit.STOP,
        max_parallel_tools=parent.max_parallel_tools,
        events=parent.events,
        clock=parent.clock,
        new_id=parent.new_id,
    )


def tools_by_name(parent: AgentPlan, names: Iterable[str]) -> dict[str, ToolLike]:
    """The parent's tools of these names."""
    offered = Tools(parent.tools)
    return {name: offered.get(name) for name in names}


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
    return (own or UNLIMITED).capped_by(context.budget_left.plus(spent))


async def run_child(plan: AgentPlan, state: AgentState, context: ToolContext) -> AgentState:
    """Run the child inside the call of its parent.

    When the call is ended, by a cancellation or the deadline, the child is cancelled and ends in
    good order, so that its last event is told and what it spent is known.
    """
    shared = SharedBudget(Purse.of(context), state)
    plan = plan.with_criteria(shared).with_hook(
        make_hook(HookTrigger.AFTER_STEP, shared.note, name="SharedBudget")
    )
    cancellation = Cancellation()
    run = asyncio.create_task(Agent.from_plan(plan).run(state, cancellation=cancellation))
    try:
        return await asyncio.shield(run)
    except asyncio.CancelledError:
        cancellation.request("the call that runs this agent was ended", source="parent")
        await asyncio.wait([run], timeout=SECONDS_TO_END)
        if not run.done():
            run.cancel()
            await asyncio.wait([run])
        if run.cancelled() or not context.is_cancelled:
            raise
        return run.result()


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
