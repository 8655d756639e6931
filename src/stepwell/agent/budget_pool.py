"""The budget tree: what an agent and its children spend together in a step, of what it had left."""

from stepwell.agent.plan import AgentPlan
from stepwell.continuation import ContinuationDecision, ContinuationEvaluation, StopReason
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.messages import Usage
from stepwell.state import AgentState, Budget

FIRST, LAST = 10_000, -10_000
_POOL, _SHARE = "pool", "share"

Spent = tuple[int, float]
"""Tokens and cost."""


class BudgetPool:
    """What an agent and its children spend in one step, of what the agent had left before it."""

    def __init__(self, step_number: int, had: Budget, share: "SharedBudget | None") -> None:
        self.step_number = step_number
        self._had = had
        self._share = share
        self._turns: Spent = (0, 0.0)
        self._shares: list[SharedBudget] = []

    @classmethod
    def of(cls, state: AgentState) -> "BudgetPool":
        """The pool of the step in flight, the same for all its calls."""
        shared, number = state.scope.shared, state.step_number
        pool = shared.get(_POOL)
        if not isinstance(pool, BudgetPool) or pool.step_number != number:
            share = shared.get(_SHARE)
            share = share if isinstance(share, SharedBudget) else None
            pool = shared[_POOL] = cls(number, state.budget_left, share)
            if share is not None:
                share.in_flight = pool
        return pool

    @property
    def depth(self) -> int:
        """How deep the agent is: 0 for one that no other agent runs."""
        return 0 if self._share is None else self._share.depth

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
        return None if self._share is None else self._share.pool.why_empty()


class SharedBudget:
    """Ends a child when it and the other children have spent what their parent had left.

    Its hooks let the child's own children find it, and tell the others what the child spends.
    """

    def __init__(self, pool: BudgetPool, begun_with: AgentState) -> None:
        self.pool = pool
        self.depth: int = pool.depth + 1
        self.in_flight: BudgetPool | None = None
        """What the step of this child spends, when it has children of its own."""
        self._recorded: Spent = (0, 0.0)
        self._before: Spent = (begun_with.usage.total_tokens, begun_with.cost)
        pool.add(self)

    @property
    def spent(self) -> Spent:
        """Tokens and cost since the call of the parent began."""
        tokens, cost = (0, 0.0) if self.in_flight is None else self.in_flight.spent
        return self._recorded[0] + tokens, self._recorded[1] + cost

    def evaluate(self, state: AgentState) -> ContinuationEvaluation:
        """Forbid once the pool is empty."""
        reached = self.pool.why_empty()
        stop, reason = reached or (None, "the parent's budget is not spent")
        return ContinuationEvaluation(
            criterion="SharedBudget",
            decision=ContinuationDecision.FORBID if stop else ContinuationDecision.ALLOW,
            reason=reason,
            context={
                "own_tokens": state.usage.total_tokens - self._before[0],
                "tokens": self.pool.spent[0],
            },
            stop_reason=stop,
        )

    def hooks(self) -> tuple[Hook, ...]:
        """What the plan of the child is given."""
        return (
            make_hook(HookTrigger.BEFORE_STEP, self._open, priority=FIRST, name="SharedBudget"),
            make_hook(HookTrigger.AFTER_STEP, self._note, priority=FIRST, name="SharedBudget"),
        )

    def _open(self, context: HookContext) -> None:
        context.state.scope.shared[_SHARE] = self

    def _note(self, context: HookContext) -> None:
        state = context.state
        self.in_flight = None
        self._recorded = (
            state.usage.total_tokens - self._before[0],
            state.cost - self._before[1],
        )


def with_turns_noted(plan: AgentPlan) -> AgentPlan:
    """The plan of an agent whose children are given what its model turn left, not what was there
    before it. Asked for twice it is done once, so that turns don't count double."""
    if any(hook.function is _note_turn for hook in plan.hooks):
        return plan
    hook = make_hook(HookTrigger.AFTER_INFERENCE, _note_turn, priority=LAST, name="SharedBudget")
    return plan.with_hook(hook)


def _note_turn(context: HookContext) -> None:
    if context.response is not None:
        spent = context.response.usage.total_tokens
        BudgetPool.of(context.state).note_turn(spent, context.response.cost)
