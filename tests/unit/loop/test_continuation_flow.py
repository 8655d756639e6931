"""Stops and continuations as they happen in a run: events, status and state tell one story."""

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentState,
    AgentStatus,
    Cancellation,
    ContinuationCriteria,
    ContinuationDecision,
    FinishReason,
    InputRequired,
    LimitReachedError,
    Message,
    ModelResponse,
    RunNotCompletedError,
    StepwellError,
    StopReason,
    ToolCall,
    ToolOutput,
    Usage,
    make_hook,
)
from stepwell.continuation import AgentStop
from stepwell.criteria import ExecutionTimeLimit, StepsLimit
from stepwell.events import (
    AgentFailed,
    AgentFinished,
    AgentStateUpdated,
    AgentStepCompleted,
    AgentStepStarted,
    ContinuationEvaluated,
)
from stepwell.state import AgentStep, PendingKind, ToolOutcome
from stepwell.testing import (
    DeterministicAgentDriver,
    EventRecorder,
    FakeClock,
    MockTool,
    ScenarioStep,
    ScriptedModel,
    SequentialIds,
    call,
)
from tests.answers import answer_call

LOOK = ScenarioStep.tool()
DONE = ScenarioStep.final("Done.")


def scripted(*steps, clock=None, **settings):
    """An agent that replays these steps, and the recorder of its events."""
    return recorded(
        Agent(
            driver=DeterministicAgentDriver(*steps),
            clock=clock or FakeClock(),
            new_id=SequentialIds(),
            **settings,
        )
    )


def recorded(agent):
    recorder = EventRecorder()
    agent.wiretap(recorder)
    return agent, recorder


def assert_one_story(state, recorder, status, reason):
    """State, terminal event and last continuation event agree."""
    (finished,) = recorder.of(AgentFinished)
    last = recorder.of(ContinuationEvaluated)[-1]
    assert state.status == finished.status == status
    assert state.stop.stop_reason == finished.stop_reason == last.outcome.stop_reason == reason
    assert state.stop == finished.outcome == last.outcome
    assert recorder.of(AgentStateUpdated)[-1].status == status


class StoppingDriver:
    """Raises AgentStop, with or without a state that holds a step."""

    def __init__(self, *, keeps_step, reason="guard"):
        self._keeps_step = keeps_step
        self._reason = reason

    async def use_tools(self, state):
        step = AgentStep(
            messages=(Message.assistant("Half."),), usage=Usage(input_tokens=7), cost=0.5
        )
        kept = state.with_current_step(step) if self._keeps_step else None
        raise AgentStop(self._reason, "driver is tired", state=kept)


class TestCriteriaInARun:
    async def test_b001_a_blank_builder_runs_nothing_and_says_why(self):
        driver = DeterministicAgentDriver(DONE)
        agent, recorder = recorded(AgentBuilder.new().with_driver(driver).build())

        state = await agent.run("hi")

        assert state.step_count == 0
        assert state.status is AgentStatus.COMPLETED
        assert state.stop.evaluations == ()
        assert recorder.of(AgentStepStarted) == []

    async def test_b024_a_criterion_that_raises_fails_the_run(self):
        def broken(state):
            if state.steps or state.current_step:
                raise ValueError("cannot count")
            return ContinuationDecision.ALLOW

        agent, recorder = scripted(LOOK, DONE, criteria=[ContinuationCriteria.when(broken)])

        state = await agent.run("hi")

        assert_one_story(state, recorder, "failed", "error")
        assert state.step_count == 1
        assert state.stop.resolved_by == "broken"
        assert "ValueError: cannot count" in state.stop.resolving_evaluation.reason
        assert "ValueError: cannot count" in state.explain()
        (failed,) = recorder.of(AgentFailed)
        assert "cannot count" in failed.error

    async def test_b024_the_other_criteria_are_still_heard(self):
        def broken(state):
            raise ValueError("cannot count")

        agent, _ = scripted(DONE, criteria=[ContinuationCriteria.when(broken)])

        state = await agent.run("hi")

        assert state.step_count == 0
        assert state.stop.evaluation_for("StepsLimit").context == {"current": 0, "maximum": 20}

    async def test_b024_a_criterion_that_votes_nonsense_fails_the_run(self):
        def odd(state):
            return "maybe"

        agent, _ = scripted(DONE, criteria=[ContinuationCriteria.when(odd)])

        state = await agent.run("hi")

        assert state.status is AgentStatus.FAILED
        assert "odd voted 'maybe'" in state.explain()

    async def test_b024_the_counter_of_a_time_limit_raises(self):
        def broken(state):
            raise ValueError("cannot count")

        agent, recorder = scripted(DONE, criteria=[ExecutionTimeLimit(60, broken)])

        state = await agent.run("hi")

        assert_one_story(state, recorder, "failed", "error")
        assert "cannot count" in state.explain()

    async def test_b024_the_counter_of_a_limit_raises_at_the_check_before_a_step(self):
        asked = []

        def broken_later(state):
            asked.append(state)
            if len(asked) == 3:
                raise ValueError("cannot count")
            return 0

        agent, _ = scripted(LOOK, DONE, criteria=[StepsLimit(5, broken_later)])

        state = await agent.run("hi")

        assert state.status in (AgentStatus.FAILED, AgentStatus.COMPLETED)

    async def test_b015_a_step_limit_of_zero_calls_no_model(self):
        model = ScriptedModel(["never"])
        agent, recorder = recorded(Agent(model, max_steps=0, clock=FakeClock()))

        state = await agent.run("hi")

        assert_one_story(state, recorder, "stopped", "steps_limit")
        assert state.step_count == 0
        assert model.requests == []
        assert recorder.of(AgentStepStarted) == []
        assert state.stop.resolving_evaluation.context == {"current": 0, "maximum": 0}

    async def test_b016_a_step_limit_of_one_with_a_tool_call_takes_exactly_one_step(self):
        agent, recorder = scripted(LOOK, DONE, max_steps=1)

        state = await agent.run("hi")

        assert_one_story(state, recorder, "stopped", "steps_limit")
        assert state.step_count == 1

    async def test_b016_a_run_that_ends_on_its_last_allowed_step_is_completed(self):
        agent, recorder = scripted(LOOK, DONE, max_steps=2)

        state = await agent.run("hi")

        assert_one_story(state, recorder, "completed", "completed")
        assert state.stop.evaluation_for("StepsLimit").decision is ContinuationDecision.ALLOW

    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            ({"max_tokens": 15}, "token_limit"),
            ({"max_cost": 0.5}, "cost_limit"),
            ({"max_steps": 1}, "steps_limit"),
        ],
    )
    async def test_b017_a_limit_reached_exactly_stops_before_the_next_model_call(
        self, settings, reason
    ):
        model = ScriptedModel([call("look"), "never"], cost=0.5)
        agent, recorder = recorded(
            Agent(model, tools=[MockTool.returning("look", 1)], clock=FakeClock(), **settings)
        )

        state = await agent.run("hi")

        assert_one_story(state, recorder, "stopped", reason)
        assert len(model.requests) == 1

    @pytest.mark.parametrize(
        ("reason", "status"),
        [("tool_calls", "completed"), ("length", "stopped"), ("content_filter", "stopped")],
    )
    async def test_b022_a_finish_reason_on_the_stop_list_ends_the_run(self, reason, status):
        turn = ModelResponse(
            tool_calls=(ToolCall(id="1", name="look"),), finish_reason=FinishReason(reason)
        )
        agent, recorder = recorded(
            AgentBuilder.base()
            .with_model(ScriptedModel([turn, "never"]))
            .with_tools([MockTool.returning("look", 1)])
            .with_stop_on_finish_reasons(reason)
            .build()
        )

        state = await agent.run("hi")

        assert_one_story(state, recorder, status, "finish_reason")
        assert state.stop.resolving_evaluation.context["stop_on"] == [reason]


class TestEventsOfDecisions:
    async def test_b039_b043_one_continuation_event_per_step_and_the_last_says_stop(self):
        agent, recorder = scripted(LOOK, DONE)

        state = await agent.run("hi")

        told = recorder.of(ContinuationEvaluated)
        assert [event.step_number for event in told] == [1, 2]
        assert [event.outcome.should_continue for event in told] == [True, False]
        assert [taken.outcome for taken in state.steps] == [event.outcome for event in told]
        assert_one_story(state, recorder, "completed", "completed")

    @pytest.mark.parametrize(
        ("steps", "settings", "status"),
        [
            ([DONE], {}, "completed"),
            ([LOOK], {"max_steps": 2}, "stopped"),
            ([LOOK], {"max_steps": 2, "at_limit": "pause"}, "paused"),
            ([ScenarioStep.error("down")], {}, "failed"),
            ([LOOK], {"max_steps": 0}, "stopped"),
        ],
    )
    async def test_b042_the_terminal_event_carries_the_final_status(self, steps, settings, status):
        agent, recorder = scripted(*steps, **settings)

        state = await agent.run("hi")

        (finished,) = recorder.of(AgentFinished)
        assert recorder.events[-1] is finished
        assert finished.status == state.status == status

    async def test_b031_continuation_and_terminal_event_name_the_same_winner(self):
        hook = make_hook("after_step", lambda context: context.stop("too hot", source="sensor"))
        agent, recorder = scripted(LOOK, hooks=[hook])

        state = await agent.run("hi")

        assert_one_story(state, recorder, "stopped", "stop_requested")
        assert state.stop.resolved_by == "sensor"
        assert recorder.of(AgentFinished)[0].outcome.resolved_by == "sensor"

    async def test_b030_a_more_urgent_signal_at_on_stop_wins_everywhere(self):
        hooks = [
            make_hook("after_step", lambda c: c.stop("enough", reason="completed", source="a")),
            make_hook(
                "on_stop", lambda c: c.stop("left the page", reason="user_requested", source="page")
            ),
        ]
        agent, recorder = scripted(LOOK, hooks=hooks)

        state = await agent.run("hi")

        assert_one_story(state, recorder, "cancelled", "user_requested")
        assert state.stop.resolved_by == "page"
        assert state.stop.resolving_evaluation.reason == "left the page"
        assert state.steps[-1].outcome == state.stop


class TestStopException:
    @pytest.mark.parametrize(
        ("reason", "status"),
        [
            ("stop_requested", "stopped"),
            ("guard", "stopped"),
            ("completed", "completed"),
            ("finish_reason", "completed"),
            ("user_requested", "cancelled"),
            ("input_required", "paused"),
            ("error", "failed"),
            ("retry_limit", "failed"),
        ],
    )
    async def test_b033_b034_a_tool_ends_the_run_with_its_reason(self, reason, status):
        tool = MockTool.raising("quit", AgentStop(reason, "that is all"))
        agent, recorder = scripted(ScenarioStep.tool_call("quit"), tools=[tool])

        state = await agent.run("hi")

        assert_one_story(state, recorder, status, reason)
        assert len(recorder.of(ContinuationEvaluated)) == 1
        assert state.stop.resolved_by == "quit"
        assert state.stop.resolving_evaluation.reason == "that is all"

    async def test_b033_the_tools_that_ran_and_the_usage_are_recorded(self):
        paid = ToolOutput(value="fine", usage=Usage(input_tokens=100))
        tools = [
            MockTool("first", lambda: paid, parallel=False),
            MockTool.raising("quit", AgentStop("guard")),
            MockTool("third", lambda: "never", parallel=False),
        ]
        calls = (call("first", id="1"), call("quit", id="2"), call("third", id="3"))
        model = ScriptedModel([calls], usage=Usage(input_tokens=10, output_tokens=5))
        agent, _ = recorded(Agent(model, tools=tools, clock=FakeClock()))

        state = await agent.run("hi")

        executions = state.steps[0].step.tool_executions
        assert [execution.call.name for execution in executions] == ["first", "quit", "third"]
        assert executions[0].text == "fine"
        assert executions[2].outcome is ToolOutcome.NOT_RUN
        assert tools[2].calls == []
        assert state.usage == Usage(input_tokens=110, output_tokens=5)
        assert not state.had_errors

    async def test_b033_a_driver_that_keeps_its_step_has_it_recorded(self):
        agent, recorder = recorded(Agent(driver=StoppingDriver(keeps_step=True)))

        state = await agent.run("hi")

        assert_one_story(state, recorder, "stopped", "guard")
        assert state.step_count == 1
        assert state.usage == Usage(input_tokens=7)
        assert state.cost == 0.5
        assert state.stop.resolved_by == "StoppingDriver"
        assert len(recorder.of(AgentStepCompleted)) == 1

    async def test_b034_a_driver_without_a_step_stops_with_one_continuation_event(self):
        agent, recorder = recorded(Agent(driver=StoppingDriver(keeps_step=False)))

        state = await agent.run("hi")

        assert_one_story(state, recorder, "stopped", "guard")
        assert state.step_count == 0
        assert len(recorder.of(ContinuationEvaluated)) == 1
        assert recorder.of(AgentFailed) == []


class TestCancellation:
    async def test_b035_requested_before_the_run_means_zero_steps(self):
        cancellation = Cancellation()
        cancellation.request("changed my mind")
        agent, recorder = scripted(DONE)

        state = await agent.run("hi", cancellation=cancellation)

        assert_one_story(state, recorder, "cancelled", "user_requested")
        assert state.step_count == 0
        assert recorder.of(AgentStepStarted) == []
        assert state.stop.resolved_by == "user"
        assert state.stop.resolving_evaluation.reason == "changed my mind"
        assert cancellation.requested

    async def test_b036_requested_when_step_one_completes_ends_before_step_two(self):
        cancellation = Cancellation()
        agent, recorder = scripted(LOOK, LOOK, DONE)
        agent.on_event(AgentStepCompleted, lambda event: cancellation.request("enough"))

        state = await agent.run("hi", cancellation=cancellation)

        assert_one_story(state, recorder, "cancelled", "user_requested")
        assert state.step_count == 1
        assert len(recorder.of(AgentStepStarted)) == 1

    async def test_b036_requested_between_two_states_of_the_iterator(self):
        cancellation = Cancellation()
        agent, _ = scripted(LOOK, LOOK, DONE)

        states = []
        async for state in agent.iterator("hi", cancellation=cancellation):
            states.append(state)
            cancellation.request()

        assert [state.status for state in states] == ["in_progress", "cancelled"]
        assert states[-1].step_count == 1

    async def test_b038_a_switch_that_nobody_touches_changes_nothing(self):
        agent, recorder = scripted(LOOK, DONE)

        state = await agent.run("hi", cancellation=Cancellation())

        assert_one_story(state, recorder, "completed", "completed")
        assert state.step_count == 2

    async def test_a_cancelled_state_can_be_run_again(self):
        cancellation = Cancellation()
        cancellation.request()
        agent, _ = scripted(DONE)

        state = await agent.run(await agent.run("hi", cancellation=cancellation))

        assert state.status is AgentStatus.COMPLETED
        assert state.execution_count == 2


class TestContinueRequest:
    async def test_b041_a_request_alone_gives_one_extra_step(self):
        def once_more(context):
            return context.request_step() if context.state.step_count == 1 else None

        agent, _ = scripted(
            ScenarioStep.final("Draft."), DONE, hooks=[make_hook("after_step", once_more)]
        )

        state = await agent.run("hi")

        assert state.step_count == 2
        assert state.final_response == "Done."
        assert state.steps[0].outcome.resolved_by == "hook"

    async def test_b040_a_request_consumes_the_signal_it_names(self):
        def stop(context):
            return context.stop("hot", source="sensor") if context.state.step_count == 1 else None

        def overrule(context):
            first = context.state.step_count == 1
            return context.request_step(source="boss", consumes=("sensor",)) if first else None

        agent, _ = scripted(
            LOOK, DONE, hooks=[make_hook("after_step", stop), make_hook("after_step", overrule)]
        )

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        first = state.steps[0].outcome
        assert first.should_continue
        assert first.evaluation_for("sensor").decision is ContinuationDecision.ALLOW
        assert "consumed by boss" in first.evaluation_for("sensor").reason

    @pytest.mark.parametrize(
        ("reason", "status"),
        [("error", "failed"), ("user_requested", "cancelled"), ("token_limit", "stopped")],
    )
    async def test_b040_a_request_never_overrides_the_hard_ones(self, reason, status):
        hooks = [
            make_hook("after_step", lambda c: c.stop("no", reason=reason, source="sensor")),
            make_hook("after_step", lambda c: c.request_step(consumes=("sensor",))),
            make_hook("on_stop", lambda c: c.request_step(consumes=("sensor",))),
        ]
        agent, recorder = scripted(LOOK, hooks=hooks)

        state = await agent.run("hi")

        assert_one_story(state, recorder, status, reason)
        assert state.step_count == 1

    async def test_b040_a_request_never_overrides_a_limit(self):
        hook = make_hook(["after_step", "on_stop"], lambda c: c.request_step())
        agent, recorder = scripted(DONE, hooks=[hook], max_steps=3)

        state = await agent.run("hi")

        assert_one_story(state, recorder, "stopped", "steps_limit")
        assert state.step_count == 3

    async def test_b040_an_on_stop_request_overrules_a_before_step_signal_and_the_step_runs(self):
        asked = []

        def gate(context):
            asked.append(context.state.step_number)
            if len(asked) > 5:
                raise RuntimeError("asked again and again for one step")
            return context.stop("closed", source="gate")

        def reopen(context):
            return context.request_step(consumes=("gate",)) if context.state.signals else None

        hooks = [make_hook("before_step", gate), make_hook("on_stop", reopen)]
        agent, recorder = scripted(DONE, hooks=hooks)

        state = await agent.run("hi")

        assert_one_story(state, recorder, "completed", "completed")
        assert state.step_count == 1
        assert state.final_response == "Done."


class TestAtLimit:
    def agent(self, choice, *turns, max_steps=1):
        model = ScriptedModel(turns)
        tool = MockTool.returning("look", "a door")
        agent, recorder = recorded(
            Agent(model, tools=[tool], max_steps=max_steps, at_limit=choice, clock=FakeClock())
        )
        return agent, recorder, model, tool

    async def test_stop_is_the_default(self):
        agent, recorder = scripted(LOOK, DONE, max_steps=1)

        state = await agent.run("hi")

        assert_one_story(state, recorder, "stopped", "steps_limit")
        assert state.final_response is None
        with pytest.raises(RunNotCompletedError, match="the step limit was reached"):
            state.unwrap()

    async def test_wrap_up_gives_one_last_step_without_tools(self):
        agent, recorder, model, tool = self.agent("wrap_up", call("look"), "All I know: a door.")

        state = await agent.run("hi")

        assert_one_story(state, recorder, "stopped", "steps_limit")
        assert state.step_count == 2
        assert state.final_response == "All I know: a door."
        assert [len(request.tools) for request in model.requests] == [1, 0]
        assert "no tool can be called" in model.requests[1].instruction.text
        assert len(tool.calls) == 1

    async def test_wrap_up_is_explained_in_the_step_before(self):
        agent, _, _, _ = self.agent("wrap_up", call("look"), "Done.")

        state = await agent.run("hi")

        first = state.steps[0].outcome
        assert first.should_continue
        assert "one last step without tools" in first.evaluation_for("StepsLimit").reason

    async def test_wrap_up_refuses_tools_the_model_calls_all_the_same(self):
        agent, _, model, tool = self.agent("wrap_up", call("look"), call("look"))

        state = await agent.run("hi")

        assert state.status is AgentStatus.STOPPED
        assert state.step_count == len(model.requests) == 2
        assert len(tool.calls) == 1
        assert state.steps[1].step.tool_executions[0].was_blocked

    async def test_wrap_up_without_any_step_just_stops(self):
        agent, _, model, _ = self.agent("wrap_up", "never", max_steps=0)

        state = await agent.run("hi")

        assert state.status is AgentStatus.STOPPED
        assert model.requests == []

    async def test_wrap_up_does_not_touch_a_run_that_completes(self):
        agent, _, model, _ = self.agent("wrap_up", "Done.")

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert len(model.requests) == 1

    async def test_pause_waits_for_budget_and_goes_on_in_the_same_execution(self):
        agent, recorder = scripted(LOOK, LOOK, DONE, max_steps=1, at_limit="pause")

        paused = await agent.run("hi")

        assert paused.status is AgentStatus.PAUSED
        assert not agent.has_next_step(paused)
        (waits_for,) = paused.pending
        assert waits_for.kind is PendingKind.BUDGET
        assert "with_budget_granted" in waits_for.prompt
        assert recorder.of(AgentFinished)[0].status is AgentStatus.PAUSED

        state = await agent.run(paused.with_budget_granted(steps=2))

        assert state.status is AgentStatus.COMPLETED
        assert state.step_count == 3
        assert state.pending == ()
        assert state.execution.id == paused.execution.id
        assert state.execution_count == 1

    async def test_pause_explains_itself_as_a_pause(self):
        agent, _ = scripted(LOOK, DONE, max_steps=1, at_limit="pause")

        text = (await agent.run("hi")).explain()

        assert "status paused" in text
        assert "with_budget_granted" in text

    async def test_pause_without_a_grant_pauses_again(self):
        agent, _ = scripted(LOOK, DONE, max_steps=1, at_limit="pause")

        state = await agent.run(await agent.run("hi"))

        assert state.status is AgentStatus.PAUSED
        assert state.step_count == 1
        assert len(state.pending) == 1

    async def test_pause_is_forgotten_when_a_roomier_agent_takes_over(self):
        tight, _ = scripted(LOOK, DONE, max_steps=1, at_limit="pause")
        roomy, _ = scripted(LOOK, DONE, max_steps=9)

        state = await roomy.run(await tight.run("hi"))

        assert state.status is AgentStatus.COMPLETED
        assert state.pending == ()

    async def test_raise_gives_the_state_with_the_exception(self):
        agent, recorder = scripted(LOOK, DONE, max_steps=1, at_limit="raise")

        with pytest.raises(LimitReachedError, match="the step limit was reached") as caught:
            await agent.run("hi")

        assert caught.value.state.step_count == 1
        assert_one_story(caught.value.state, recorder, "stopped", "steps_limit")

    async def test_raise_does_not_touch_other_endings(self):
        agent, _ = scripted(ScenarioStep.error("down"), at_limit="raise")

        assert (await agent.run("hi")).status is AgentStatus.FAILED

    async def test_raise_in_the_iterator_comes_after_the_last_state(self):
        agent, _ = scripted(LOOK, DONE, max_steps=1, at_limit="raise")
        states = agent.iterator("hi")

        assert (await anext(states)).status is AgentStatus.STOPPED
        with pytest.raises(LimitReachedError):
            await anext(states)

    async def test_an_unknown_choice_is_a_construction_error(self):
        with pytest.raises(ValueError, match=r"'explode'; known: stop, wrap_up, pause, raise"):
            scripted(DONE, at_limit="explode")

    async def test_a_grant_to_a_stopped_run_is_not_silently_lost(self):
        agent, _ = scripted(LOOK, LOOK, DONE, max_steps=1)
        stopped = await agent.run("hi")

        try:
            state = await agent.run(stopped.with_budget_granted(steps=5))
        except StepwellError:
            return  # refused in words is as good as granted
        assert state.status is AgentStatus.COMPLETED


class TestPauseForInput:
    ASK = ScenarioStep.tool_calls(call("ask", id="q1"))

    def agent(self, *steps):
        tool = MockTool.returning("ask", InputRequired(prompt="Which door?"))
        return scripted(*(steps or (self.ASK, DONE)), tools=[tool])

    async def test_the_run_pauses_and_goes_on_with_the_answer(self):
        agent, recorder = self.agent()

        paused = await agent.run("hi")

        assert_one_story(paused, recorder, "paused", "input_required")
        assert paused.pending[0].prompt == "Which door?"
        assert paused.pending[0].call_id == "q1"

        state = await agent.run(answer_call(paused, "q1", "the red one"))

        assert state.status is AgentStatus.COMPLETED
        assert state.step_count == 2
        assert state.execution.id == paused.execution.id
        assert "the red one" in [message.text for message in state.messages]

    async def test_running_without_the_answer_pauses_again_without_a_step(self):
        agent, recorder = self.agent()
        paused = await agent.run("hi")

        again = await agent.run(paused)

        assert again.status is AgentStatus.PAUSED
        assert again.step_count == 1
        assert again.pending == paused.pending
        assert len(recorder.of(AgentStepStarted)) == 1

    async def test_unwrap_of_a_paused_run_raises(self):
        agent, _ = self.agent()

        with pytest.raises(RunNotCompletedError, match="waits for an answer"):
            (await agent.run("hi")).unwrap()

    async def test_a_paused_run_that_is_cancelled_waits_for_nothing(self):
        agent, _ = self.agent()
        cancellation = Cancellation()
        cancellation.request("never mind")

        state = await agent.run(await agent.run("hi"), cancellation=cancellation)

        assert state.status is AgentStatus.CANCELLED
        assert state.pending == ()


class TestDoorsOfTheLoop:
    async def test_run_iterator_and_next_step_agree_on_steps_and_decisions(self):
        def fresh():
            agent, recorder = scripted(LOOK, LOOK, DONE)
            return agent, recorder, agent.new_state("hi")

        agent, by_run, state = fresh()
        run = await agent.run(state)
        agent, by_iterator, state = fresh()
        iterated = [state async for state in agent.iterator(state)][-1]
        agent, by_hand, state = fresh()
        while agent.has_next_step(state):
            state = await agent.next_step(state)

        assert run.steps == iterated.steps == state.steps
        assert run.stop == iterated.stop == state.stop
        assert by_run.names == by_iterator.names == by_hand.names

    async def test_the_iterator_yields_one_state_per_step(self):
        agent, _ = scripted(LOOK, LOOK, DONE)

        states = [state async for state in agent.iterator("hi")]

        assert [state.step_count for state in states] == [1, 2, 3]
        assert [state.status for state in states] == ["in_progress", "in_progress", "completed"]

    async def test_a_finished_state_starts_a_new_execution(self):
        agent, _ = scripted(LOOK, DONE, DONE)
        first = await agent.run("hi")

        second = await agent.run(first.with_user_message("and now?"))

        assert second.execution_count == 2
        assert second.step_count == 1
        assert second.execution.id != first.execution.id
        assert first.step_count == 2

    async def test_an_empty_state_can_be_run(self):
        agent, _ = scripted(DONE)

        assert (await agent.run(AgentState.empty())).stop.stop_reason is StopReason.COMPLETED
