"""Invariants over random scenarios: one result for all doors, and a history valid for providers."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Cancellation,
    ErrorPolicy,
    Final,
    HookContext,
    InputRequired,
    Message,
    ModelError,
    ToolFailure,
    make_hook,
)
from stepwell.continuation import AgentStop
from stepwell.events import AgentFinished, ToolCallStarted
from stepwell.messages import Role
from stepwell.testing import FakeClock, MockTool, ScriptedModel, SequentialIds, call
from tests.examples import examples

TOOLS = ("good", "fails", "raises", "slow", "stops", "asks", "alone", "missing", "blocked")

calls = st.lists(st.sampled_from(TOOLS), min_size=1, max_size=4).map(
    lambda names: [call(name) for name in names]
)
scenarios = st.fixed_dictionaries(
    {
        "turns": st.lists(
            calls | st.sampled_from(["hello", "a longer answer", "", "error"]),
            min_size=1,
            max_size=6,
        ),
        "policy": st.sampled_from(
            [
                ErrorPolicy.stop_on_any_error(),
                ErrorPolicy.retry_tool_errors(2),
                ErrorPolicy.ignore_tool_errors(),
                ErrorPolicy.retry_all(3),
            ]
        ),
        "at_limit": st.sampled_from(["stop", "wrap_up", "pause"]),
        "max_steps": st.integers(0, 5),
        "cancel_at": st.none() | st.integers(1, 6),
    }
)
thorough = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)


class Scenario:
    """An agent and a cancellation, made anew for each run so that runs do not share anything."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.cancellation = Cancellation()
        script = iter([ModelError("scripted") if t == "error" else t for t in plan["turns"]])
        self.agent = Agent(
            ScriptedModel(lambda _request: next(script, "the end")),
            tools=self._tools(),
            hooks=[make_hook("before_tool", _refuse_blocked)],
            error_policy=plan["policy"],
            at_limit=plan["at_limit"],
            max_steps=plan["max_steps"],
            clock=FakeClock(),
            new_id=SequentialIds(),
        )
        self._started = 0
        if plan["cancel_at"] is not None:
            self.agent.on_event(ToolCallStarted, lambda _: self._count(plan["cancel_at"]))

    def _count(self, cancel_at: int) -> None:
        self._started += 1
        if self._started == cancel_at:
            self.cancellation.request("enough of it")

    def _tools(self) -> list[MockTool]:
        async def slow() -> str:
            for _ in range(3):
                await asyncio.sleep(0)
            return "slow but sure"

        return [
            MockTool.returning("good", {"ok": True}),
            MockTool.returning("fails", ToolFailure("not there")),
            MockTool.raising("raises", ValueError("boom")),
            MockTool("slow", slow),
            MockTool.raising("stops", AgentStop(message="enough")),
            MockTool.returning("asks", InputRequired(prompt="Which one?")),
            MockTool("alone", lambda: "done alone", parallel=False),
            MockTool.returning("blocked", "never"),
        ]


def _refuse_blocked(context: HookContext) -> HookContext | None:
    return context.block("not allowed") if context.call.name == "blocked" else None


async def by_run(plan: dict[str, Any]) -> AgentState:
    scenario = Scenario(plan)
    return await scenario.agent.run("Go.", cancellation=scenario.cancellation)


async def by_iterator(plan: dict[str, Any]) -> list[AgentState]:
    scenario = Scenario(plan)
    return [s async for s in scenario.agent.iterator("Go.", cancellation=scenario.cancellation)]


async def by_stream(plan: dict[str, Any]) -> AgentState:
    scenario = Scenario(plan)
    parts = [p async for p in scenario.agent.stream("Go.", cancellation=scenario.cancellation)]
    assert isinstance(parts[-1], Final)
    return parts[-1].state


async def by_hand(plan: dict[str, Any]) -> AgentState:
    scenario = Scenario(plan)
    state = scenario.agent.new_state("Go.")
    while scenario.agent.has_next_step(state):
        state = await scenario.agent.next_step(state, cancellation=scenario.cancellation)
    return state


@thorough
@given(plan=scenarios)
async def test_all_doors_give_the_same_final_state(plan: dict[str, Any]) -> None:
    """B236: run == last of iterator == last of stream == stepping by hand."""
    state = await by_run(plan)
    assert (await by_iterator(plan))[-1] == state
    assert await by_stream(plan) == state
    assert await by_hand(plan) == state


@thorough
@given(plan=scenarios)
async def test_history_is_always_valid_for_a_provider(plan: dict[str, Any]) -> None:
    """After every step each tool call has exactly one result, right behind its message."""
    states = await by_iterator(plan)
    snapshots = [tuple(state.messages) for state in states]
    for state, messages in zip(states, snapshots, strict=True):
        assert_valid(messages)
        assert tuple(state.messages) == messages


@thorough
@given(plan=scenarios)
async def test_every_run_ends_once_and_says_why(plan: dict[str, Any]) -> None:
    """B42, B134: one terminal event, with the final status, reason and votes."""
    scenario = Scenario(plan)
    finished: list[AgentFinished] = []
    scenario.agent.on_event(AgentFinished, finished.append)
    state = await scenario.agent.run("Go.", cancellation=scenario.cancellation)
    assert [event.status for event in finished] == [state.status]
    assert state.status is not AgentStatus.IN_PROGRESS
    assert state.stop is not None
    assert state.stop.resolved_by in state.explain() or state.stop.resolved_by == "aggregate"
    assert all(recorded.outcome.evaluations for recorded in state.steps)
    assert [recorded.number for recorded in state.steps] == list(range(1, state.step_count + 1))
    assert sum((r.step.usage.total_tokens for r in state.steps), 0) == state.usage.total_tokens
    assert state.total_failures == sum(r.step.has_errors for r in state.steps)


@thorough
@given(plan=scenarios)
async def test_a_finished_state_can_be_run_again(plan: dict[str, Any]) -> None:
    """B126: a new execution; messages stay, steps and usage start over."""
    scenario = Scenario(plan)
    first = await scenario.agent.run("Go.", cancellation=scenario.cancellation)
    if not first.is_finished:
        return
    second = await scenario.agent.run(first.with_user_message("And now?"))
    assert second.execution_count == first.execution_count + 1
    assert second.execution.id != first.execution.id
    assert tuple(second.messages)[: len(first.messages)] == tuple(first.messages)
    assert_valid(tuple(second.messages))


def assert_valid(messages: tuple[Message, ...]) -> None:
    """What all providers demand of the order of calls and results."""
    awaited: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            assert message.tool_result is not None
            assert awaited, "a result without a call"
            assert message.tool_result.call_id == awaited.pop(0)
        else:
            assert not awaited, f"calls without results: {awaited}"
            awaited = [wanted.id for wanted in message.tool_calls]
            assert len(set(awaited)) == len(awaited)
        assert message.parts, "an empty message"
    assert not awaited, f"calls without results: {awaited}"
    ids = [message.id for message in messages]
    assert len(set(ids)) == len(ids)
