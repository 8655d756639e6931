"""Time in a run: wall limits, active time, and durations, by a clock that only tests move."""

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentState,
    AgentStatus,
    ConfigurationError,
    StopReason,
    make_hook,
)
from stepwell.criteria import CumulativeExecutionTimeLimit, ExecutionTimeLimit
from stepwell.events import AgentFinished, AgentStepCompleted, AgentStepStarted, ToolCallCompleted
from stepwell.testing import (
    DeterministicAgentDriver,
    EventRecorder,
    FakeClock,
    MockTool,
    ScenarioStep,
    ScriptedModel,
    call,
)

WORK = ScenarioStep.tool_call("work")
DONE = ScenarioStep.final("Done.")


@pytest.fixture
def clock():
    return FakeClock()


def working(clock, seconds, *steps, **settings):
    """An agent whose tool takes that long, and the recorder of its events."""
    recorder = EventRecorder()
    agent = Agent(
        driver=DeterministicAgentDriver(*(steps or (WORK, WORK, DONE))),
        tools=[MockTool("work", lambda: clock.advance(seconds))],
        clock=clock,
        **settings,
    )
    agent.wiretap(recorder)
    return agent, recorder


class TestWallLimit:
    async def test_b079_it_stops_once_the_time_is_up(self, clock):
        agent, recorder = working(clock, 61, timeout=60)

        state = await agent.run("hi")

        assert state.status is AgentStatus.STOPPED
        assert state.stop.stop_reason is StopReason.TIME_LIMIT
        assert state.stop.resolved_by == "ExecutionTimeLimit"
        assert state.stop.resolving_evaluation.context == {"current": 61, "maximum": 60}
        assert "with_timeout" in state.explain()
        assert len(recorder.of(AgentStepStarted)) == 1

    async def test_b079_it_does_not_stop_before(self, clock):
        agent, _ = working(clock, 29, WORK, DONE, timeout=30)

        assert (await agent.run("hi")).status is AgentStatus.COMPLETED

    async def test_time_that_passes_between_steps_is_noticed_before_the_next_one(self, clock):
        agent, recorder = working(clock, 1, timeout=60)
        states = agent.iterator("hi")
        await anext(states)

        clock.advance(60)
        state = await anext(states)

        assert state.stop.stop_reason is StopReason.TIME_LIMIT
        assert state.step_count == 1
        assert len(recorder.of(AgentStepStarted)) == 1

    @pytest.mark.parametrize("seconds", [0, -1])
    @pytest.mark.parametrize("name", ["timeout", "cumulative_timeout"])
    def test_b080_a_limit_of_nothing_is_a_construction_error(self, name, seconds):
        with pytest.raises(ConfigurationError, match="seconds above 0"):
            Agent(driver=DeterministicAgentDriver(DONE), **{name: seconds})

    def test_b080_the_builder_refuses_it_too(self):
        builder = AgentBuilder.base().with_driver(DeterministicAgentDriver(DONE))

        with pytest.raises(ConfigurationError, match="seconds above 0"):
            builder.with_timeout(0).build()

    async def test_b081_a_state_created_days_ago_does_not_time_out(self, clock):
        agent, _ = working(clock, 1, WORK, DONE, timeout=60)
        state = AgentState.empty(at=clock.now()).with_user_message("hi")
        clock.advance(5 * 24 * 3600)

        assert (await agent.run(state)).status is AgentStatus.COMPLETED

    async def test_b081_a_finished_state_run_again_days_later_does_not_time_out(self, clock):
        agent, _ = working(clock, 1, DONE, timeout=60)
        first = await agent.run("hi")
        clock.advance(5 * 24 * 3600)

        second = await agent.run(first.with_user_message("still there?"))

        assert second.status is AgentStatus.COMPLETED

    async def test_b081_a_paused_run_taken_up_days_later_starts_its_wall_clock_anew(self, clock):
        agent, _ = working(clock, 1, timeout=60, max_steps=1, at_limit="pause")
        paused = await agent.run("hi")
        clock.advance(5 * 24 * 3600)

        state = await agent.run(paused.with_budget_granted(steps=5))

        assert state.status is AgentStatus.COMPLETED
        assert state.step_count == 3

    async def test_b082_the_start_is_marked_on_every_way_in(self, clock):
        clock.advance(17)
        agent, _ = working(clock, 1)

        iterated = await anext(agent.iterator("hi"))
        stepped = await agent.next_step("hi")

        assert iterated.execution.entered_monotonic == 17
        assert stepped.execution.entered_monotonic == 18

    async def test_b082_the_start_is_seen_by_a_run_to_the_end_and_gone_after_it(self, clock):
        clock.advance(17)
        seen = []
        hook = make_hook(
            "before_step", lambda context: seen.append(context.state.execution.entered_monotonic)
        )
        agent, _ = working(clock, 1, WORK, DONE, hooks=[hook])

        state = await agent.run("hi")

        assert seen == [17, 17]
        assert state.execution.entered_monotonic is None

    async def test_manual_steps_share_one_wall_clock(self, clock):
        agent, _ = working(clock, 40, timeout=60)

        state = await agent.next_step("hi")
        assert state.status is AgentStatus.IN_PROGRESS
        state = await agent.next_step(state)

        assert state.stop.stop_reason is StopReason.TIME_LIMIT
        assert state.step_count == 2

    async def test_at_limit_pause_grants_seconds(self, clock):
        agent, _ = working(clock, 60, timeout=60, at_limit="pause")

        paused = await agent.run("hi")
        assert paused.status is AgentStatus.PAUSED
        state = await agent.run(paused.with_budget_granted(seconds=10))

        assert state.status is AgentStatus.COMPLETED
        assert state.pending == ()


class TestActiveTime:
    async def test_b084_wall_time_between_steps_does_not_count(self, clock):
        agent, _ = working(clock, 0.25, cumulative_timeout=1)

        states = []
        async for state in agent.iterator("hi"):
            states.append(state)
            clock.advance(3600)

        assert states[-1].status is AgentStatus.COMPLETED
        assert states[-1].cumulative_seconds == 0.5

    async def test_b085_active_time_equal_to_the_limit_stops(self, clock):
        agent, _ = working(clock, 0.5, WORK, WORK, WORK, cumulative_timeout=1)

        state = await agent.run("hi")

        assert state.step_count == 2
        assert state.stop.stop_reason is StopReason.TIME_LIMIT
        vote = state.stop.resolving_evaluation
        assert vote.criterion == "CumulativeExecutionTimeLimit"
        assert vote.context == {"cumulative_seconds": 1.0, "max_seconds": 1}

    async def test_b087_the_sum_of_the_steps_is_in_the_state(self, clock):
        agent, _ = working(clock, 1.5)

        state = await agent.run("hi")

        assert [taken.duration_seconds for taken in state.steps] == [1.5, 1.5, 0.0]
        assert state.cumulative_seconds == state.active_seconds == 3.0

    async def test_b087_active_time_goes_on_over_executions(self, clock):
        agent, _ = working(clock, 1.5, WORK, DONE, WORK, DONE)

        state = await agent.run(await agent.run("hi"))

        assert state.execution_count == 2
        assert state.cumulative_seconds == 3.0

    async def test_b087_active_time_spent_in_a_step_that_was_stopped_counts(self, clock):
        def slow_then_stop(context):
            clock.advance(2)
            return context.stop("no")

        agent, _ = working(clock, 1, hooks=[make_hook("before_step", slow_then_stop)])

        state = await agent.run("hi")

        assert state.step_count == 0
        assert state.cumulative_seconds == 2.0

    def test_a_cumulative_limit_replaces_the_wall_limit(self):
        driver = DeterministicAgentDriver(DONE)
        built = AgentBuilder.base().with_driver(driver).with_cumulative_timeout(5).build()
        constructed = Agent(driver=driver, cumulative_timeout=5)

        for agent in (built, constructed):
            assert agent.plan.timeout is None
            assert agent.plan.budget.seconds == 5

    async def test_both_limits_may_be_asked_for(self, clock):
        agent, _ = working(clock, 40, timeout=60, cumulative_timeout=1000)

        state = await agent.run("hi")

        assert state.stop.resolved_by == "ExecutionTimeLimit"
        assert state.step_count == 2


class TestDurations:
    async def test_b089_a_run_of_50_ms_is_told_with_its_fraction(self, clock):
        agent, recorder = working(clock, 0.05, WORK, DONE)

        state = await agent.run("hi")

        (finished,) = recorder.of(AgentFinished)
        assert finished.duration_ms == pytest.approx(50)
        assert recorder.of(AgentStepCompleted)[0].duration_ms == pytest.approx(50)
        assert state.steps[0].duration_seconds == pytest.approx(0.05)

    async def test_b090_a_step_lasts_as_long_as_its_inference_and_its_tools(self, clock):
        turns = iter([call("work"), "Done."])

        def think(request):
            clock.advance(2)
            return next(turns)

        recorder = EventRecorder()
        agent = Agent(
            ScriptedModel(think), tools=[MockTool("work", lambda: clock.advance(3))], clock=clock
        )
        agent.wiretap(recorder)

        state = await agent.run("hi")

        assert [taken.duration_seconds for taken in state.steps] == [5, 2]
        assert [event.duration_ms for event in recorder.of(AgentStepCompleted)] == [5000, 2000]
        assert recorder.of(ToolCallCompleted)[0].duration_ms == 3000
        first = state.steps[0]
        assert (first.completed_at - first.started_at).total_seconds() == 5

    async def test_a_run_by_hand_reports_the_time_since_its_first_step(self, clock):
        agent, recorder = working(clock, 1, WORK, DONE)

        state = await agent.next_step("hi")
        clock.advance(9)
        await agent.next_step(state)

        assert recorder.of(AgentFinished)[0].duration_ms == 10_000


class TestAskedDirectly:
    def test_b088_limits_have_nothing_to_say_before_a_run(self, clock):
        state = AgentState.empty(at=clock.now())
        clock.advance(1000)

        assert not ExecutionTimeLimit(1, clock=clock).is_reached(state)
        assert not CumulativeExecutionTimeLimit(1).is_reached(state)

    async def test_b083_a_state_that_left_its_run_counts_from_its_start(self, clock):
        agent, _ = working(clock, 1, DONE)
        state = await agent.run("hi")
        clock.advance(60)

        assert ExecutionTimeLimit(60, clock=clock).is_reached(state)
