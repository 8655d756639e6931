"""A long run costs memory in proportion to what its steps added, with every state kept."""

import gc
import tracemalloc

from stepwell import Agent, AgentState
from stepwell.testing import MockTool, ScriptedModel, call


async def states_of(steps: int) -> list[AgentState]:
    turns = iter([call("note") for _ in range(steps)])
    agent = Agent(
        ScriptedModel(lambda _request: next(turns, "done")),
        tools=[MockTool.returning("note", "x" * 100)],
        repeated_calls=None,
        max_steps=None,
        max_tokens=None,
    )
    return [state async for state in agent.iterator("Go.")]


async def bytes_per_step(steps: int) -> float:
    gc.collect()
    tracemalloc.start()
    kept = await states_of(steps)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size / len(kept)


async def test_memory_is_linear_in_the_steps() -> None:
    await states_of(5)
    assert await bytes_per_step(1000) < 1.15 * await bytes_per_step(100)


async def test_older_states_stay_valid_and_unchanged() -> None:
    states = await states_of(1000)
    for number in (1, 10, 500, 999):
        state = states[number - 1]
        assert state.step_count == number
        assert len(state.messages) == 1 + 2 * number
        assert [recorded.number for recorded in state.steps] == list(range(1, number + 1))
        assert state.usage.total_tokens == 15 * number
        assert state.messages[-1].text == "x" * 100


async def test_two_futures_of_one_state_do_not_touch_each_other() -> None:
    base = (await states_of(20))[9]
    left = base.with_user_message("left")
    right = base.with_user_message("right")
    assert [s.messages[-1].text for s in (left, right)] == ["left", "right"]
    assert len(base.messages) == 21
