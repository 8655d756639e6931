"""What a tool, and through it a subagent, may still spend of the run's budget."""

from typing import Any

import pytest

from stepwell import Agent, AgentState, ConfigurationError, ToolContext, ToolOutput, Usage, tool
from stepwell.state import Budget
from stepwell.testing import FakeClock, ScriptedModel, call


def agent_that_looks(seen: list[Budget], **limits: Any) -> Agent:
    @tool
    async def look(context: ToolContext) -> ToolOutput:
        """Look at the budget, and spend some of it as a subagent would."""
        seen.append(context.budget_left)
        return ToolOutput(value="seen", usage=Usage(input_tokens=100), cost=0.5)

    turns = [call("look"), call("look"), "done"]
    return Agent(ScriptedModel(turns, cost=0.25), tools=[look], clock=FakeClock(), **limits)


async def test_what_is_left_shrinks_by_what_model_and_tools_spent() -> None:
    seen: list[Budget] = []
    agent = agent_that_looks(seen, max_steps=5, max_tokens=1000, max_cost=2.0, timeout=60)
    state = await agent.run("Look.")
    assert [(b.steps, b.tokens, b.cost) for b in seen] == [(5, 1000, 2.0), (4, 885, 1.25)]
    assert all(59 < b.seconds <= 60 for b in seen)
    assert state.usage.total_tokens == 245
    assert state.cost == 1.75


async def test_no_limit_leaves_no_limit() -> None:
    seen: list[Budget] = []
    await agent_that_looks(seen, max_steps=None, max_tokens=None, timeout=None).run("Look.")
    assert seen[0] == Budget()


async def test_a_grant_is_part_of_what_is_left() -> None:
    seen: list[Budget] = []
    agent = agent_that_looks(seen, max_steps=1, at_limit="pause")
    paused = await agent.run("Look.")
    await agent.run(paused.with_budget_granted(steps=4))
    assert [b.steps for b in seen] == [1, 4]


def test_without_a_step_in_flight_there_is_nothing_to_tell() -> None:
    with pytest.raises(ConfigurationError, match="no step is in flight"):
        _ = AgentState.empty().budget_left
