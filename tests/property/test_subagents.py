"""Whatever trees of subagents do: all that is spent is counted once, and the budget holds."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import Agent, AgentState, AgentStatus, Approval
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import SubagentPolicy, UseSubagents
from stepwell.events import AgentExecutionStarted, AgentFinished
from stepwell.models import ModelRequest
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import Budget
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call
from tests.examples import examples

TURN = 15
DEPTH = 3
PARALLEL = 3

Turn = list[str]
"""The calls of a turn: names of agents to spawn, ``look`` and ``ask``; none is an answer."""

turns = st.lists(
    st.lists(st.sampled_from(["a", "b", "look", "ask"]), max_size=PARALLEL), max_size=3
)
budgets = st.one_of(
    st.none(),
    st.builds(
        Budget,
        steps=st.none() | st.integers(0, 4),
        tokens=st.none() | st.integers(0, 12 * TURN),
    ),
)


class Tree:
    """Agents that spawn each other as a script says."""

    def __init__(
        self,
        scripts: dict[str, list[Turn]],
        specs: dict[str, Budget | None],
        max_tokens: int | None,
    ) -> None:
        self.scripts = scripts
        self.model = ScriptedModel(self.turn)
        self.ran = MockTool("ask", lambda: asyncio.sleep(0, "done"))
        registry = AgentRegistry(
            AgentSpec(name=name, description=name, system_prompt=name, budget=budget)
            for name, budget in specs.items()
        )
        self.agent = Agent(
            self.model,
            system_prompt="main",
            tools=[MockTool("look", lambda: asyncio.sleep(0, "x")), self.ran],
            capabilities=[
                UseSubagents(registry, SubagentPolicy(max_depth=DEPTH)),
                UseApprovals("ask"),
            ],
            max_tokens=max_tokens,
        )
        self.events = EventRecorder()
        self.agent.wiretap(self.events)

    def turn(self, request: ModelRequest) -> Any:
        script = self.scripts[request.context.messages[-1].text]
        number = sum(message.is_assistant() for message in request.messages)
        wanted = script[number] if number < len(script) else []
        calls = [
            call(name, id=f"c{i}")
            if name in ("look", "ask")
            else call("spawn_subagent", id=f"c{i}", subagent=name, prompt="Go")
            for i, name in enumerate(wanted)
        ]
        return calls or "An answer."

    @property
    def spent(self) -> int:
        return TURN * len(self.model.requests)


async def to_the_end(tree: Tree, answers: list[bool]) -> tuple[AgentState, int]:
    """The final state, and how many questions were approved."""
    state, approved, asked = await tree.agent.run("Go"), 0, 0
    while state.status is AgentStatus.PAUSED:
        assert state.usage.total_tokens == tree.spent
        for waits in state.pending:
            yes = answers[asked % len(answers)]
            asked, approved = asked + 1, approved + yes
            assert waits.call_id is not None
            state = state.with_answer(waits, yes or Approval.denied("no"))
        state = await tree.agent.run(state)
    return state, approved


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    main=turns,
    a=turns,
    b=turns,
    budget_a=budgets,
    budget_b=budgets,
    max_tokens=st.none() | st.integers(1, 60 * TURN),
    answers=st.lists(st.booleans(), min_size=1, max_size=4),
)
async def test_all_that_is_spent_is_counted_once_and_stays_within_the_budget(
    main: list[Turn],
    a: list[Turn],
    b: list[Turn],
    budget_a: Budget | None,
    budget_b: Budget | None,
    max_tokens: int | None,
    answers: list[bool],
) -> None:
    if max_tokens is None:  # Trees without a limit grow fast.
        a, b = a[:1], b[:1]
    tree = Tree({"main": main, "a": a, "b": b}, {"a": budget_a, "b": budget_b}, max_tokens)
    state, approved = await to_the_end(tree, answers)

    assert state.is_finished
    assert state.usage.total_tokens == tree.spent
    assert len(tree.ran.calls) <= approved
    if max_tokens is not None:
        under_way = PARALLEL**DEPTH
        assert tree.spent < max_tokens + TURN * (1 + under_way)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    started, ended = tree.events.of(AgentExecutionStarted), tree.events.of(AgentFinished)
    assert len(started) == len(ended)
    calls = [part.id for message in state.messages for part in message.tool_calls]
    results = [m.tool_result.call_id for m in state.messages if m.tool_result is not None]
    assert calls == results
