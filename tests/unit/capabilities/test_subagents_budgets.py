"""Budgets form a tree: children spend what their parent has left, alone and together."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from stepwell import Agent, AgentState, AgentStatus, StopReason
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import SubagentPolicy, UseSubagents
from stepwell.events import AgentFinished, ContinuationEvaluated, SubagentCompleted
from stepwell.models import ModelRequest
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import Budget
from stepwell.testing import (
    DeterministicAgentDriver,
    EventRecorder,
    MockTool,
    ScenarioStep,
    ScriptedModel,
    call,
)
from tests.answers import answer_call

TURN = 15
"""Tokens of a turn of the scripted model."""


def speaker(request: ModelRequest) -> str:
    return request.context.messages[-1].text


def by_agent(turns: Mapping[str, Any], cost: float = 0.0) -> ScriptedModel:
    def turn(request: ModelRequest) -> Any:
        own = turns[speaker(request)]
        if callable(own):
            return own(request)
        return own[sum(message.is_assistant() for message in request.messages)]

    return ScriptedModel(turn, cost=cost)


def spawn(name: str = "worker", id: str = "s1") -> Any:
    return call("spawn_subagent", id=id, subagent=name, prompt=f"Do it, {id}")


def spec(name: str = "worker", **parts: Any) -> AgentSpec:
    return AgentSpec(name=name, description=name, system_prompt=name, **parts)


def looking(_: ModelRequest) -> Any:
    """A child that never ends by itself."""
    return [call("look")]


def agent_of(
    turns: Mapping[str, Any],
    *specs: AgentSpec,
    policy: SubagentPolicy | None = None,
    cost: float = 0.0,
    capabilities: Sequence[Any] = (),
    **parts: Any,
) -> tuple[Agent, ScriptedModel, EventRecorder]:
    model = by_agent({"main": [spawn(), "Done."], "worker": looking, **turns}, cost)
    registry = AgentRegistry(specs or [spec()])
    agent = Agent(
        model,
        system_prompt="main",
        tools=[MockTool("look", lambda: asyncio.sleep(0))],
        capabilities=[UseSubagents(registry, policy), *capabilities],
        **parts,
    )
    events = EventRecorder()
    agent.wiretap(events)
    return agent, model, events


def result(state: AgentState, call_id: str = "s1") -> str:
    results = [m.tool_result for m in state.messages if m.tool_result is not None]
    return next(r.content for r in results if r.call_id == call_id)


def steps_of(name: str, model: ScriptedModel) -> int:
    return [speaker(r) for r in model.requests].count(name)


@pytest.mark.parametrize(
    ("budget", "reason", "steps"),
    [
        (Budget(steps=2), "steps_limit", 2),
        (Budget(tokens=40), "token_limit", 3),
        (Budget(cost=0.5), "cost_limit", 2),
        (Budget(steps=0), "steps_limit", 0),
        (Budget(tokens=0), "token_limit", 0),
    ],
)
async def test_b184_the_budget_of_the_spec_caps_the_child(
    budget: Budget, reason: str, steps: int
) -> None:
    agent, model, _ = agent_of({}, spec(budget=budget), cost=0.25)
    state = await agent.run("Go")
    assert result(state) == f"(Stopped before it was done: {reason}.)"
    assert steps_of("worker", model) == steps
    assert state.usage.total_tokens == TURN * len(model.requests)
    assert state.cost == pytest.approx(0.25 * len(model.requests))


async def test_a_budget_without_time_lets_no_step_run() -> None:
    agent, model, _ = agent_of({}, spec(budget=Budget(seconds=0.0)))
    state = await agent.run("Go")
    assert result(state) == "(Stopped before it was done: time_limit.)"
    assert steps_of("worker", model) == 0


async def test_without_a_budget_the_policy_has_one() -> None:
    agent, model, _ = agent_of({}, policy=SubagentPolicy(budget=Budget(steps=3)))
    await agent.run("Go")
    assert steps_of("worker", model) == 3


@pytest.mark.parametrize(("trusted", "steps"), [(True, 5), (False, 3)])
async def test_a_spec_replaces_the_budget_of_the_policy_only_if_it_is_trusted(
    trusted: bool, steps: int
) -> None:
    own = spec(budget=Budget(steps=5), trusted=trusted)
    agent, model, _ = agent_of({}, own, policy=SubagentPolicy(budget=Budget(steps=3)))
    await agent.run("Go")
    assert steps_of("worker", model) == steps


async def test_steps_of_the_parent_cap_the_child() -> None:
    agent, model, _ = agent_of({}, spec(budget=Budget(steps=100)), max_steps=4)
    await agent.run("Go")
    assert steps_of("worker", model) == 4


async def test_tokens_of_the_parent_cap_the_child_after_the_turn_that_spawned_it() -> None:
    agent, model, _ = agent_of({}, spec(budget=Budget(tokens=10_000)), max_tokens=5 * TURN)
    state = await agent.run("Go")
    assert steps_of("worker", model) == 4
    assert state.usage.total_tokens == 5 * TURN
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TOKEN_LIMIT


async def test_cost_of_the_parent_caps_the_child() -> None:
    agent, model, _ = agent_of({}, max_cost=1.0, cost=0.25)
    state = await agent.run("Go")
    assert (steps_of("worker", model), state.cost) == (3, 1.0)


@pytest.mark.parametrize(
    ("limit", "steps"),
    [({"max_steps": 4}, 3), ({"max_tokens": 6 * TURN}, 4), ({"max_cost": 1.5}, 4)],
)
async def test_b184_without_a_budget_the_child_has_what_the_parent_has_left(
    limit: dict[str, Any], steps: int
) -> None:
    agent, model, _ = agent_of({"main": [[call("look")], spawn(), "Done."]}, cost=0.25, **limit)
    await agent.run("Go")
    assert steps_of("worker", model) == steps


async def test_b184_without_a_budget_the_child_has_the_time_that_the_parent_has_left() -> None:
    agent, model, _ = agent_of({"worker": ["ok"]}, timeout=60)
    await agent.run("Go")
    of_parent, of_child, _ = [request.seconds_left or 0.0 for request in model.requests]
    assert 0 < of_child <= of_parent <= 60


async def test_what_earlier_children_spent_is_gone() -> None:
    turns = {"main": [spawn(), spawn(id="s2"), spawn(id="s3"), "Done."], "worker": ["ok"]}
    agent, model, _ = agent_of(turns, max_tokens=5 * TURN)
    state = await agent.run("Go")
    assert result(state, "s2") == "ok"
    assert state.usage.total_tokens == 5 * TURN == TURN * len(model.requests)


async def test_a_turn_that_leaves_nothing_lets_no_child_run() -> None:
    agent, model, events = agent_of({}, max_tokens=TURN)
    state = await agent.run("Go")
    assert result(state) == "(Stopped before it was done: token_limit.)"
    assert len(model.requests) == 1
    assert [e.steps for e in events.of(SubagentCompleted)] == [0]


@pytest.mark.parametrize("limit", [{"max_tokens": 40 * TURN}, {"max_cost": 10.0}])
async def test_children_side_by_side_share_what_the_parent_has_left(limit: Any) -> None:
    calls = [spawn(id=f"s{i}") for i in range(6)]
    agent, model, _ = agent_of({"main": [calls, "Done."]}, max_steps=None, cost=0.25, **limit)
    state = await agent.run("Go")

    # Each of the six may have a turn under way when the last token is spent.
    assert 40 <= len(model.requests) <= 46
    assert state.usage.total_tokens == TURN * len(model.requests)
    assert state.cost == pytest.approx(0.25 * len(model.requests))
    assert {"(Stopped before it was done: " in result(state, f"s{i}") for i in range(6)} == {True}


async def test_grandchildren_of_different_children_share_it_too() -> None:
    calls = [spawn("manager", id=f"s{i}") for i in range(4)]
    turns = {
        "main": [calls, "Done."],
        "manager": lambda _: [spawn(id="g1"), spawn(id="g2")],
    }
    agent, model, _ = agent_of(
        turns, spec(), spec("manager"), max_tokens=100 * TURN, max_steps=None, timeout=None
    )
    state = await agent.run("Go")

    assert state.usage.total_tokens == TURN * len(model.requests)
    assert 100 <= len(model.requests) <= 100 + 4 + 8


async def test_a_child_with_a_small_budget_shares_it_with_its_own_children() -> None:
    turns = {
        "main": [spawn("manager"), "Done."],
        "manager": lambda _: [spawn(id=f"g{i}") for i in range(4)],
    }
    agent, model, _ = agent_of(turns, spec(), spec("manager", budget=Budget(tokens=20 * TURN)))
    state = await agent.run("Go")

    below = steps_of("manager", model) + steps_of("worker", model)
    assert 20 <= below <= 24
    assert state.status is AgentStatus.COMPLETED


async def test_the_vote_says_what_was_spent() -> None:
    agent, _, events = agent_of(
        {"main": [[spawn(), spawn(id="s2")], "Done."]}, max_tokens=10 * TURN, max_parallel_tools=1
    )
    await agent.run("Go")
    votes = [
        vote
        for e in events.of(ContinuationEvaluated)
        for vote in e.outcome.evaluations
        if vote.criterion == "SharedBudget" and vote.stop_reason is not None
    ]
    assert votes
    assert votes[0].stop_reason is StopReason.TOKEN_LIMIT
    assert votes[0].reason == "the parent and its subagents spent 150 of the 150 tokens left"
    assert votes[0].context["own_tokens"] < votes[0].context["tokens"]


async def test_a_resumed_child_counts_only_what_is_new() -> None:
    delete = MockTool("delete", handler=lambda path: "gone")
    model = by_agent(
        {
            "main": [spawn(), "Done."],
            "worker": [[call("look")]] * 3
            + [call("delete", id="d", path="a")]
            + [[call("look")]] * 9,
        }
    )
    agent = Agent(
        model,
        system_prompt="main",
        tools=[MockTool.returning("look", "x"), delete],
        capabilities=[UseSubagents(AgentRegistry([spec()])), UseApprovals("delete")],
        max_tokens=8 * TURN,
    )
    paused = await agent.run("Go")
    assert paused.usage.total_tokens == 5 * TURN
    state = await agent.run(answer_call(paused, "s1", True))

    assert len(delete.calls) == 1
    assert state.usage.total_tokens == 8 * TURN == TURN * len(model.requests)


async def test_a_resumed_child_keeps_what_it_used_of_its_own_budget() -> None:
    delete = MockTool("delete", handler=lambda path: "gone")
    look, asking = [call("look")], call("delete", id="d", path="a")
    model = by_agent({"main": [spawn(), "Done."], "worker": [look, asking, *[look] * 9]})
    agent = Agent(
        model,
        system_prompt="main",
        tools=[MockTool.returning("look", "x"), delete],
        capabilities=[
            UseSubagents(AgentRegistry([spec(budget=Budget(tokens=4 * TURN))])),
            UseApprovals("delete"),
        ],
    )
    paused = await agent.run("Go")
    state = await agent.run(answer_call(paused, "s1", True))
    assert steps_of("worker", model) == 4
    assert result(state) == "(Stopped before it was done: token_limit.)"


async def test_more_budget_for_a_paused_parent_is_more_for_its_children() -> None:
    turns = {"main": lambda _: [spawn()], "worker": ["ok"]}
    agent, model, _ = agent_of(turns, max_tokens=2 * TURN, at_limit="pause")
    paused = await agent.run("Go")
    assert (paused.status, len(model.requests)) == (AgentStatus.PAUSED, 2)
    again = await agent.run(paused.with_budget_granted(tokens=2 * TURN))
    assert (again.status, len(model.requests)) == (AgentStatus.PAUSED, 4)


async def test_scripted_children_of_a_driver_share_as_well() -> None:
    driver = DeterministicAgentDriver.from_steps(
        ScenarioStep.tool_calls(*(spawn(id=f"s{i}") for i in range(3))),
        ScenarioStep.final("Done."),
        child_steps=(ScenarioStep.tool_call("look", cost=1.0),),
    )
    agent = Agent(
        driver=driver,
        tools=[MockTool("look", lambda: asyncio.sleep(0))],
        capabilities=[UseSubagents(AgentRegistry([spec()]))],
        max_cost=9.0,
        max_steps=None,
    )
    state = await agent.run("Go")
    assert 9.0 <= state.cost <= 11.0


async def test_a_child_stopped_at_a_limit_has_a_last_event() -> None:
    agent, _, events = agent_of({}, spec(budget=Budget(steps=1)))
    await agent.run("Go")
    reasons = [e.stop_reason for e in events.of(AgentFinished)]
    assert reasons == [StopReason.STEPS_LIMIT, StopReason.COMPLETED]
