"""Errors in a run: who is classified how, and what the policy makes of it."""

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentStatus,
    ContinuationCriteria,
    ErrorPolicy,
    Message,
    ModelError,
    StopReason,
    ToolFailure,
    make_hook,
)
from stepwell.backoff import Backoff
from stepwell.criteria import ErrorPolicyCriterion, ToolCallPresenceCheck
from stepwell.errors import ErrorType
from stepwell.events import AgentFailed, AgentStepStarted
from stepwell.state import AgentStep, ErrorInfo, StepType, ToolOutcome
from stepwell.testing import (
    DeterministicAgentDriver,
    EventRecorder,
    FakeClock,
    MockTool,
    ScenarioStep,
    ScriptedModel,
    call,
)

LOOK = ScenarioStep.tool_call("look")
DONE = ScenarioStep.final("Done.")
RETRY = ErrorPolicy.retry_tool_errors(3)


def failing(*errors):
    """A tool that raises these, one after the other, and then works."""
    left = list(errors)

    def look():
        if left:
            raise left.pop(0)
        return "a door"

    return MockTool("look", look)


def scripted(*steps, tool=None, clock=None, **settings):
    recorder = EventRecorder()
    agent = Agent(
        driver=DeterministicAgentDriver(*steps),
        tools=[tool or failing(ValueError("no door"))],
        clock=clock or FakeClock(),
        **settings,
    )
    agent.wiretap(recorder)
    return agent, recorder


class TestTheDefaultPolicy:
    async def test_b073_a_tool_that_raises_stops_the_run_and_the_text_says_what_to_change(self):
        agent, recorder = scripted(LOOK, DONE)

        state = await agent.run("hi")

        assert state.status is AgentStatus.FAILED
        assert state.stop.stop_reason is StopReason.ERROR
        assert state.stop.resolved_by == "ErrorPolicyCriterion"
        text = state.explain()
        for words in ("look", "ValueError: no door", "ErrorPolicy.retry_tool_errors(3)"):
            assert words in text
        (failed,) = recorder.of(AgentFailed)
        assert (failed.exception_type, failed.error) == ("ValueError", "ValueError: no door")

    async def test_b073_the_builder_has_the_same_default(self):
        agent = (
            AgentBuilder.base()
            .with_driver(DeterministicAgentDriver(LOOK, DONE))
            .with_tools([failing(ValueError("no door"))])
            .build()
        )

        assert (await agent.run("hi")).stop.stop_reason is StopReason.ERROR

    @pytest.mark.parametrize("error_type", list(ErrorType))
    async def test_b059_each_type_of_error_stops_the_run(self, error_type):
        agent, _ = scripted(ScenarioStep.error("down", error_type=error_type), DONE)

        state = await agent.run("hi")

        assert state.status is AgentStatus.FAILED
        assert state.stop.resolving_evaluation.context["error_type"] == error_type
        assert state.step_count == 1

    async def test_a_failure_returned_as_a_value_is_not_an_error(self):
        agent, _ = scripted(LOOK, DONE, tool=MockTool.returning("look", ToolFailure("no door")))

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert not state.had_errors
        assert state.steps[0].step.step_type is StepType.TOOL_EXECUTION

    async def test_b161_an_unknown_tool_is_not_an_error_for_the_policy(self):
        agent, _ = scripted(ScenarioStep.tool_call("fly"), DONE)

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.NOT_FOUND
        assert not state.had_errors

    async def test_b164_a_blocked_call_is_not_an_error_for_the_policy(self):
        agent, _ = scripted(
            LOOK, DONE, hooks=[make_hook("before_tool", lambda context: context.block("no"))]
        )

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert not state.had_errors


class TestFacts:
    async def test_b068_a_tool_that_raises_counts_one_of_one(self):
        agent, _ = scripted(LOOK, DONE)

        state = await agent.run("hi")

        (error,) = state.steps[0].step.errors
        assert error == ErrorInfo(
            type=ErrorType.TOOL, exception="ValueError", message="no door", tool_name="look"
        )
        context = state.stop.resolving_evaluation.context
        assert (context["consecutive_failures"], context["total_failures"]) == (1, 1)
        assert context["tool_name"] == "look"

    async def test_b067_the_evaluation_shows_all_facts(self):
        agent, _ = scripted(LOOK, DONE, error_policy=RETRY)

        state = await agent.run("hi")

        vote = state.steps[0].outcome.evaluation_for("ErrorPolicyCriterion")
        assert vote.context == {
            "error_type": "tool",
            "consecutive_failures": 1,
            "total_failures": 1,
            "max_retries": 3,
            "handling": "retry",
            "tool_name": "look",
        }

    async def test_b070_a_tools_timeout_is_of_type_timeout(self):
        agent, _ = scripted(LOOK, DONE, tool=failing(TimeoutError("slow")))

        state = await agent.run("hi")

        (error,) = state.steps[0].step.errors
        assert (error.type, error.tool_name) == (ErrorType.TIMEOUT, "look")

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (RuntimeError("x"), "model"),
            (ModelError("x"), "model"),
            (ModelError("x", error_type=ErrorType.RATE_LIMIT), "rate_limit"),
            (ModelError("x", error_type=ErrorType.VALIDATION), "validation"),
            (TimeoutError("x"), "timeout"),
        ],
    )
    async def test_b071_an_error_of_the_model_call_has_its_exact_type(self, error, expected):
        agent = Agent(ScriptedModel([error]), clock=FakeClock(), model_retries=0)
        state = await agent.run("hi")

        assert state.status is AgentStatus.FAILED
        assert [error.type for error in state.steps[0].step.errors] == [expected]
        assert state.steps[0].step.step_type is StepType.ERROR

    async def test_b078_tool_errors_and_step_errors_are_both_listed(self):
        def also(context):
            step = context.state.current_step
            own = ErrorInfo(type=ErrorType.UNKNOWN, exception="Own", message="found later")
            amended = AgentStep(
                messages=step.messages, tool_executions=step.tool_executions, failures=(own,)
            )
            return context.with_state(context.state.with_step_amended(amended))

        agent, _ = scripted(LOOK, DONE, hooks=[make_hook("after_step", also)])

        state = await agent.run("hi")

        assert [error.exception for error in state.steps[0].step.errors] == ["Own", "ValueError"]
        assert "no door" in state.explain()
        assert "found later" in state.explain()

    async def test_attributes_of_a_foreign_exception_do_not_hide_it_from_the_policy(self):
        class WebhookError(Exception):
            hook = "https://example.org/hook"

        agent, _ = scripted(LOOK, DONE, tool=failing(WebhookError("refused")))

        state = await agent.run("hi")

        assert state.status is AgentStatus.FAILED
        assert state.stop.resolved_by == "ErrorPolicyCriterion"


class TestRetries:
    async def test_b074_with_a_retry_policy_the_same_state_goes_on(self):
        stops = ContinuationCriteria(
            ErrorPolicyCriterion(ErrorPolicy.stop_on_any_error()), ToolCallPresenceCheck()
        )
        retries = ContinuationCriteria(ErrorPolicyCriterion(RETRY), ToolCallPresenceCheck())
        agent, _ = scripted(LOOK, DONE)
        state = await agent.run("hi")

        assert stops.evaluate(state).stop_reason is StopReason.ERROR
        assert retries.can_continue(state)

    async def test_b077_a_recovered_error_leaves_a_completed_run_that_had_errors(self):
        agent, recorder = scripted(LOOK, DONE, error_policy=RETRY)

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert state.final_response == "Done."
        assert state.had_errors
        assert (state.consecutive_failures, state.total_failures) == (0, 1)
        assert recorder.of(AgentFailed) == []

    async def test_the_model_sees_the_error_it_may_repair(self):
        model = ScriptedModel([call("look"), "Done."])
        tool = failing(ValueError("no door"))

        await Agent(model, tools=[tool], error_policy=RETRY, clock=FakeClock()).run("hi")

        result = model.requests[1].messages[-1].tool_result
        assert "ValueError: no door" in result.content
        assert result.is_error

    async def test_b066_the_run_stops_at_the_nth_failure_in_a_row_with_retry_limit(self):
        always = MockTool.raising("look", ValueError("no door"))
        agent, _ = scripted(LOOK, tool=always, error_policy=RETRY)

        state = await agent.run("hi")

        assert state.status is AgentStatus.FAILED
        assert state.stop.stop_reason is StopReason.RETRY_LIMIT
        assert state.step_count == len(always.calls) == 3
        assert "with_max_retries" in state.explain()

    async def test_a_success_in_between_starts_the_count_over(self):
        agent, _ = scripted(
            *(ScenarioStep.error("down", error_type="tool"), ScenarioStep.tool()) * 4,
            DONE,
            error_policy=ErrorPolicy.retry_tool_errors(2),
        )

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert state.total_failures == 4

    async def test_a_failed_model_call_is_asked_again(self):
        model = ScriptedModel([ModelError("down"), "Done."])
        agent = Agent(model, error_policy=ErrorPolicy.retry_all(3), clock=FakeClock())

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert len(model.requests) == 2
        assert [taken.step.step_type for taken in state.steps] == ["error", "final_response"]

    async def test_ignored_errors_go_on_without_a_count(self):
        always = MockTool.raising("look", ValueError("no door"))
        agent, _ = scripted(
            *[LOOK] * 6, DONE, tool=always, error_policy=ErrorPolicy.ignore_tool_errors()
        )

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert state.total_failures == 6

    async def test_max_retries_alone_retries_tool_errors(self):
        always = MockTool.raising("look", ValueError("no door"))
        agent, _ = scripted(LOOK, tool=always, max_retries=2)

        state = await agent.run("hi")

        assert state.stop.stop_reason is StopReason.RETRY_LIMIT
        assert state.step_count == 2

    async def test_retries_stop_at_the_step_limit_too(self):
        always = MockTool.raising("look", ValueError("no door"))
        agent, _ = scripted(LOOK, tool=always, error_policy=ErrorPolicy.retry_all(99), max_steps=4)

        state = await agent.run("hi")

        assert state.stop.stop_reason is StopReason.STEPS_LIMIT
        assert state.step_count == 4


class TestWaiting:
    LIMITED = ScenarioStep.error("slow down", error_type="rate_limit")

    async def test_rate_limits_wait_longer_each_time(self):
        clock = FakeClock()
        policy = RETRY.with_max_retries(9).with_backoff(Backoff(initial=2, factor=3, jitter=0))
        agent, _ = scripted(*[self.LIMITED] * 3, DONE, clock=clock, error_policy=policy)

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert clock.slept == [2, 6, 18]
        assert state.steps[0].outcome.delay_seconds == 2

    async def test_the_providers_retry_after_is_honoured(self):
        clock = FakeClock()
        limited = ModelError("slow down", error_type=ErrorType.RATE_LIMIT, retry_after=12.5)
        agent = Agent(
            ScriptedModel([limited, "Done."]), error_policy=RETRY, clock=clock, model_retries=0
        )

        state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert clock.slept == [12.5]

    async def test_a_wait_that_would_pass_the_deadline_is_not_begun(self):
        clock = FakeClock()
        limited = ModelError("slow down", kind="rate_limit", retry_after=90)
        agent = Agent(
            ScriptedModel([limited, "Done."]), error_policy=RETRY, clock=clock, timeout=60
        )

        state = await agent.run("hi")

        assert clock.slept == []
        assert state.stop.stop_reason is StopReason.TIME_LIMIT
        assert "90.0 s, ends after the deadline" in state.explain()

    async def test_waiting_counts_for_the_wall_limit_but_not_as_active_time(self):
        clock = FakeClock()
        policy = RETRY.with_backoff(Backoff(initial=100, maximum=100))
        agent, recorder = scripted(self.LIMITED, DONE, clock=clock, error_policy=policy, timeout=60)

        state = await agent.run("hi")

        assert state.stop.stop_reason is StopReason.TIME_LIMIT
        assert len(recorder.of(AgentStepStarted)) == 1
        assert state.cumulative_seconds == 0

    async def test_a_wait_that_has_passed_already_is_not_waited_again(self):
        clock = FakeClock()
        agent, _ = scripted(
            self.LIMITED,
            DONE,
            clock=clock,
            error_policy=RETRY.with_backoff(Backoff(initial=10, jitter=0)),
        )
        state = await agent.next_step("hi")

        clock.advance(4)
        state = await agent.next_step(state)

        assert state.status is AgentStatus.COMPLETED
        assert clock.slept == [6]

    @pytest.mark.parametrize("word", ["30", "soon", object()])
    async def test_a_strange_retry_after_of_a_tools_exception_does_not_break_the_run(self, word):
        class Strange(Exception):
            retry_after = word

        agent, _ = scripted(LOOK, DONE, tool=failing(Strange("busy")), error_policy=RETRY)

        assert (await agent.run("hi")).status is AgentStatus.COMPLETED


class TestAfterAFailure:
    async def test_b075_a_driver_exception_after_a_good_step_fails_and_offers_no_step(self):
        class Breaks:
            async def use_tools(self, state):
                if state.steps:
                    raise RuntimeError("broken")
                return await DeterministicAgentDriver(ScenarioStep.tool()).use_tools(state)

        agent = Agent(driver=Breaks(), clock=FakeClock())

        state = await agent.run("hi")

        assert state.status is AgentStatus.FAILED
        assert state.step_count == 2
        assert not agent.has_next_step(state)
        assert state.total_failures == 1

    async def test_a_failed_state_starts_over_with_a_new_execution(self):
        agent, _ = scripted(ScenarioStep.error("down"), DONE)
        failed = await agent.run("hi")

        state = await agent.run(failed.with_message(Message.user("again")))

        assert state.status is AgentStatus.COMPLETED
        assert not state.had_errors
        assert state.execution_count == 2
