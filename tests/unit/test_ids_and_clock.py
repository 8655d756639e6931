"""Where ids and time come from, and that everything uses what it was given."""

import uuid
from datetime import UTC, timedelta

from stepwell import Agent
from stepwell.clock import SystemClock
from stepwell.ids import new_id
from stepwell.testing import FakeClock, MockTool, ScriptedModel, SequentialIds, call


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = uuid.UUID(new_id())

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert str(made) == str(made).lower()


def test_ids_are_unique_and_sorted_by_the_time_they_were_made() -> None:
    ids = [new_id() for _ in range(10_000)]
    times = [uuid.UUID(made).int >> 80 for made in ids]
    now = SystemClock().now().timestamp() * 1000

    assert len(set(ids)) == len(ids)
    assert times == sorted(times)
    assert abs(times[-1] - now) < 10_000


async def test_the_system_clock_tells_utc_and_never_runs_backwards() -> None:
    clock = SystemClock()
    before, started = clock.monotonic(), clock.now()
    await clock.sleep(0.002)

    assert started.tzinfo is UTC
    assert clock.now() >= started
    assert clock.monotonic() >= before + 0.002


async def test_a_run_takes_every_id_from_the_factory() -> None:
    state = await Agent(ScriptedModel(["Hi."]), new_id=SequentialIds()).run("Go")
    assert state.execution is not None

    assert state.agent_id == "id-1"
    assert state.messages[0].id == "id-2"
    assert state.execution.id == "id-3"
    assert state.messages[1].id == "id-3:1:0"


async def test_a_run_takes_every_time_from_the_clock() -> None:
    clock = FakeClock()
    start = clock.now()

    async def slow() -> str:
        clock.advance(3)
        return "ok"

    agent = Agent(ScriptedModel([call("slow"), "Hi."]), tools=[MockTool("slow", slow)], clock=clock)
    state = await agent.run("Go")
    assert state.execution is not None
    step = state.steps[0]
    execution = step.step.tool_executions[0]
    end = start + timedelta(seconds=3)

    assert (state.created_at, state.updated_at) == (start, end)
    assert state.execution.started_at == start
    assert (step.started_at, step.completed_at, step.duration_seconds) == (start, end, 3)
    assert (execution.started_at, execution.completed_at) == (start, end)
    assert execution.duration_seconds == 3
    assert state.cumulative_seconds == 3
