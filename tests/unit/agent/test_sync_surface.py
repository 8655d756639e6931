"""The same runs for callers without an event loop, and a clear error for those with one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import Agent, AgentStatus, Cancellation
from stepwell.errors import SyncInsideLoopError
from stepwell.testing import MockTool, ScriptedModel, call


def adding_agent() -> Agent:
    model = ScriptedModel([call("add", id="c1"), "Three."])
    return Agent(model, tools=[MockTool.returning("add", 3)])


def test_all_ways_to_run_end_in_the_same_answer() -> None:
    ran = adding_agent().run_sync("Go")
    finished = adding_agent().final_step_sync("Go")
    iterated = list(adding_agent().iterator_sync("Go"))
    agent = adding_agent()
    stepped = agent.next_step_sync("Go")
    assert stepped.step_count == 1
    assert agent.has_next_step(stepped)
    stepped = agent.next_step_sync(stepped)

    for state in (ran, finished, iterated[-1], stepped):
        assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "Three.")
        assert state.step_count == 2
    assert [state.step_count for state in iterated] == [1, 2]
    assert not agent.has_next_step(stepped)


def test_an_iterator_can_be_left_early() -> None:
    model = ScriptedModel([call("add"), "never"])
    agent = Agent(model, tools=[MockTool.returning("add", 3)])
    for state in agent.iterator_sync("Go"):
        assert state.step_count == 1
        break

    assert len(model.requests) == 1


def test_cancellation_is_passed_on() -> None:
    cancellation = Cancellation()
    cancellation.request("no")

    for run in (Agent.run_sync, Agent.final_step_sync, Agent.next_step_sync):
        state = run(adding_agent(), "Go", cancellation=cancellation)
        assert (state.status, state.step_count) == (AgentStatus.CANCELLED, 0)
    [state] = adding_agent().iterator_sync("Go", cancellation=cancellation)
    assert state.status is AgentStatus.CANCELLED


@pytest.mark.parametrize(
    ("method", "instead"),
    [
        (Agent.run_sync, r"run_sync\(\) .*use `await agent\.run\(\.\.\.\)`"),
        (Agent.final_step_sync, r"final_step_sync\(\).*`await agent\.final_step\(\.\.\.\)`"),
        (Agent.next_step_sync, r"next_step_sync\(\).*`await agent\.next_step\(\.\.\.\)`"),
        (Agent.iterator_sync, r"iterator_sync\(\).*`async for state in agent\.iterator\("),
    ],
)
async def test_inside_a_running_loop_the_error_says_what_to_write(
    method: Callable[..., Any], instead: str
) -> None:
    with pytest.raises(SyncInsideLoopError, match=instead):
        method(adding_agent(), "Go")


def test_sync_runs_leave_the_callers_loop_policy_alone() -> None:
    adding_agent().run_sync("Go")

    assert asyncio.run(adding_agent().run("Go")).final_response == "Three."
