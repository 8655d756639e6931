"""Hooks as they run in the loop: what they change is kept, what they raise is contained."""

import logging

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentStatus,
    ErrorPolicy,
    HookTrigger,
    Message,
    ModelResponse,
    StopReason,
    ToolFailure,
    Usage,
    make_hook,
)
from stepwell.continuation import AgentStop, StopSignal
from stepwell.errors import ErrorType
from stepwell.events import (
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    AgentStepStarted,
    ContinuationEvaluated,
    InferenceRequestStarted,
    InferenceResponseReceived,
)
from stepwell.hooks import ALL_TRIGGERS
from stepwell.state import AgentStep
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

TRIGGERS = list(HookTrigger)
AFTER_THE_MODEL = [
    trigger
    for trigger in HookTrigger
    if trigger not in ("before_execution", "before_step", "before_inference")
]
DONE = ScenarioStep.final("Done.")


LOOK_THEN_DONE = (call("look"), "Done.")


def modelled(*hooks, turns=LOOK_THEN_DONE, tool=None, **settings):
    """An agent with a model and one tool, and the recorder of its events."""
    recorder = EventRecorder()
    agent = Agent(
        ScriptedModel(turns),
        tools=[tool or MockTool.returning("look", "a door")],
        hooks=hooks,
        clock=FakeClock(),
        new_id=SequentialIds(),
        **settings,
    )
    agent.wiretap(recorder)
    return agent, recorder


def reaching(trigger, *hooks):
    """An agent whose run reaches that trigger; on_error needs a tool that raises."""
    tool = MockTool.raising("look", OSError("rt")) if trigger == "on_error" else None
    return modelled(*hooks, tool=tool, error_policy=ErrorPolicy.retry_tool_errors(3))


def raising(error):
    def broken(context):
        raise error

    return broken


def remembering(key):
    return lambda context: context.with_state(context.state.with_metadata({key: True}))


class TestOrder:
    async def test_every_trigger_runs_at_its_moment(self):
        seen = []
        hook = make_hook(ALL_TRIGGERS, lambda context: seen.append(str(context.trigger)))
        agent, _ = reaching("on_error", hook)

        await agent.run("hi")

        assert seen == [
            "before_execution",
            "before_step",
            "before_inference",
            "after_inference",
            "before_tool",
            "after_tool",
            "after_step",
            "on_error",
            "before_step",
            "before_inference",
            "after_inference",
            "after_step",
            "on_stop",
            "after_execution",
        ]

    async def test_b044_priority_then_registration_in_a_run(self):
        seen = []

        def noting(name):
            return lambda context: seen.append(name)

        agent = (
            AgentBuilder.base()
            .with_driver(DeterministicAgentDriver(DONE))
            .add_hook("after_step", noting("low"), priority=-5)
            .add_hook("after_step", noting("one"))
            .add_hook("after_step", noting("high"), priority=5)
            .add_hook("after_step", noting("two"))
            .build()
        )

        await agent.run("hi")

        assert seen == ["high", "one", "two", "low"]

    async def test_b057_building_twice_gives_independent_agents_of_the_same_behaviour(self):
        seen = []
        base = (
            AgentBuilder.base()
            .with_driver(DeterministicAgentDriver(DONE))
            .add_hook("after_step", lambda context: seen.append("shared"))
        )

        first, second = base.build(), base.build()
        extended = base.add_hook("after_step", lambda context: seen.append("extra")).build()

        await first.run("hi")
        await second.run("hi")
        assert seen == ["shared", "shared"]
        await extended.run("hi")
        await first.run("hi")
        assert seen == ["shared", "shared", "shared", "extra", "shared"]
        assert first.loop is not second.loop


class TestChanges:
    @pytest.mark.parametrize("trigger", TRIGGERS)
    async def test_a_change_of_the_state_is_kept(self, trigger):
        agent, _ = reaching(trigger, make_hook(trigger, remembering("seen")))

        state = await agent.run("hi")

        assert state.metadata["seen"] is True
        assert state.status is AgentStatus.COMPLETED

    async def test_b054_inference_hooks_and_events_come_in_order_with_post_hook_values(self):
        order = []

        def shorten(context):
            order.append("before hook")
            request = context.request
            extra = (*request.messages, Message.user("be brief"))
            return context.with_request(type(request)(messages=extra, tools=()))

        def rewrite(context):
            order.append("after hook")
            return context.with_response(
                ModelResponse(text="Rewritten.", usage=Usage(input_tokens=1), model="other")
            )

        agent, recorder = modelled(
            make_hook("before_inference", shorten),
            make_hook("after_inference", rewrite),
            turns=["Original."],
        )
        agent.on_event(InferenceRequestStarted, lambda event: order.append("request event"))
        agent.on_event(InferenceResponseReceived, lambda event: order.append("response event"))

        state = await agent.run("hi")

        assert order == ["before hook", "request event", "after hook", "response event"]
        (asked,) = recorder.of(InferenceRequestStarted)
        (answered,) = recorder.of(InferenceResponseReceived)
        assert (asked.message_count, asked.tool_count) == (2, 0)
        assert (answered.text, answered.model) == ("Rewritten.", "other")
        assert answered.usage == Usage(input_tokens=1)
        assert asked.inference_id == answered.inference_id != ""
        assert state.final_response == "Rewritten."
        assert state.usage == Usage(input_tokens=1)

    async def test_b054_each_step_has_an_inference_id_of_its_own(self):
        agent, recorder = modelled()

        await agent.run("hi")

        ids = [event.inference_id for event in recorder.of(InferenceRequestStarted)]
        assert len(set(ids)) == 2

    async def test_a_before_tool_hook_may_refuse_rewrite_or_replace_a_call(self):
        tool = MockTool("look", lambda where="": f"saw {where}")
        answers = [
            lambda context: context.block("not now"),
            lambda context: context.with_call(call("look", where="left")),
            lambda context: context.with_result("imagined"),
        ]
        turns = [call("look"), call("look"), call("look"), "Done."]

        def vary(context):
            return answers[context.state.step_number - 1](context)

        agent, _ = modelled(make_hook("before_tool", vary), turns=turns, tool=tool)

        state = await agent.run("hi")

        executions = [taken.step.tool_executions[0] for taken in state.steps[:3]]
        assert "not now" in executions[0].text
        assert executions[0].was_blocked
        assert [execution.text for execution in executions[1:]] == ["saw left", "imagined"]
        assert tool.calls == [{"where": "left"}]
        assert state.status is AgentStatus.COMPLETED

    async def test_an_after_tool_hook_may_rewrite_a_result(self):
        agent, _ = modelled(make_hook("after_tool", lambda c: c.with_result(ToolFailure("shut"))))

        state = await agent.run("hi")

        (execution,) = state.steps[0].step.tool_executions
        assert "shut" in execution.text
        assert execution.is_error
        assert not state.had_errors

    async def test_a_processor_changes_the_state_after_each_step(self):
        async def count(state):
            return state.with_metadata({"count": state.metadata.get("count", 0) + 1})

        agent = (
            AgentBuilder.base()
            .with_driver(DeterministicAgentDriver(ScenarioStep.tool(), DONE))
            .add_processor(count)
            .build()
        )

        assert (await agent.run("hi")).metadata["count"] == 2

    async def test_an_error_hook_sees_the_error_of_the_step(self):
        seen = []
        agent, _ = reaching(
            "on_error", make_hook("on_error", lambda context: seen.append(context.error))
        )

        await agent.run("hi")

        (error,) = seen
        assert (error.type, error.tool_name, error.message) == (ErrorType.TOOL, "look", "rt")


class TestHooksThatRaise:
    async def test_b047_a_before_step_hook_that_raises_leaves_no_step(self):
        agent, recorder = modelled(make_hook("before_step", raising(ValueError("boom"))))

        state = await agent.run("hi")

        assert state.status is AgentStatus.FAILED
        assert state.step_count == 0
        assert len(recorder.of(AgentStepStarted)) == 1
        assert recorder.of(AgentStepCompleted) == []

    @pytest.mark.parametrize("trigger", TRIGGERS)
    async def test_b050_it_is_contained_and_the_run_fails(self, trigger):
        agent, recorder = reaching(
            trigger, make_hook(trigger, raising(ValueError("boom")), name="mine")
        )

        state = await agent.run("hi")

        (finished,) = recorder.of(AgentFinished)
        assert state.status is finished.status is AgentStatus.FAILED
        assert state.stop.stop_reason is StopReason.ERROR
        assert recorder.of(ContinuationEvaluated)[-1].outcome == state.stop
        for words in ("mine", str(trigger), "ValueError: boom"):
            assert words in state.explain()

    @pytest.mark.parametrize("trigger", TRIGGERS)
    async def test_b050_it_is_reported_with_its_type_and_text(self, trigger):
        agent, recorder = reaching(trigger, make_hook(trigger, raising(ValueError("boom"))))

        await agent.run("hi")

        (failed,) = recorder.of(AgentFailed)
        assert "boom" in failed.error
        assert failed.exception_type in ("ValueError", "HookError")

    async def test_b050_the_report_is_about_the_hook_and_not_about_an_older_error(self):
        def second_time(context):
            if context.state.step_number == 2:
                raise ValueError("boom")

        agent, recorder = reaching("on_error", make_hook("before_step", second_time))

        state = await agent.run("hi")

        (failed,) = recorder.of(AgentFailed)
        assert state.step_count == 1
        assert "boom" in failed.error
        assert "rt" not in failed.error.split()

    @pytest.mark.parametrize("policy", [ErrorPolicy.retry_all(5), ErrorPolicy.ignore_tool_errors()])
    @pytest.mark.parametrize("trigger", TRIGGERS)
    async def test_b050_no_error_policy_lets_the_run_go_on(self, trigger, policy):
        tool = MockTool.raising("look", OSError("rt")) if trigger == "on_error" else None
        hook = make_hook(trigger, raising(ValueError("boom")))
        agent, _ = modelled(hook, tool=tool, error_policy=policy)

        assert (await agent.run("hi")).status is AgentStatus.FAILED

    @pytest.mark.parametrize("trigger", AFTER_THE_MODEL)
    async def test_b050_what_the_model_was_paid_is_recorded(self, trigger):
        agent, recorder = reaching(trigger, make_hook(trigger, raising(ValueError("boom"))))

        state = await agent.run("hi")

        turns = len(recorder.of(InferenceRequestStarted))
        assert state.usage.total_tokens == 15 * turns

    async def test_b050_a_listener_that_raises_does_not_touch_the_run(self, caplog):
        agent, recorder = modelled()
        agent.wiretap(raising(ValueError("deaf")))

        with caplog.at_level(logging.ERROR, logger="stepwell.events"):
            state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert recorder.names[-1] == "AgentFinished"
        assert "deaf" in caplog.text

    async def test_b050_an_async_listener_that_raises_does_not_touch_the_run(self, caplog):
        async def deaf(event):
            raise ValueError("deaf")

        agent, _ = modelled()
        agent.wiretap(deaf)

        with caplog.at_level(logging.ERROR, logger="stepwell.events"):
            state = await agent.run("hi")

        assert state.status is AgentStatus.COMPLETED
        assert "deaf" in caplog.text


class TestHooksThatStop:
    @pytest.mark.parametrize("trigger", TRIGGERS)
    async def test_b033_agent_stop_keeps_its_reason_and_is_no_error(self, trigger):
        agent, recorder = reaching(
            trigger, make_hook(trigger, raising(AgentStop("guard", "too hot", source="sensor")))
        )

        state = await agent.run("hi")

        assert state.status is AgentStatus.STOPPED
        assert state.stop.stop_reason is StopReason.GUARD
        assert state.stop.resolved_by == "sensor"
        assert state.stop.resolving_evaluation.reason == "too hot"
        assert recorder.of(AgentFailed) == []

    @pytest.mark.parametrize("trigger", TRIGGERS)
    async def test_b033_agent_stop_without_a_source_is_told_as_the_hooks(self, trigger):
        hook = make_hook(trigger, raising(AgentStop("guard")), name="mine")
        agent, _ = reaching(trigger, hook)

        state = await agent.run("hi")

        assert state.stop.resolved_by in ("hook", "mine")

    @pytest.mark.parametrize("trigger", AFTER_THE_MODEL)
    async def test_b033_the_step_and_its_usage_are_recorded(self, trigger):
        agent, recorder = reaching(trigger, make_hook(trigger, raising(AgentStop("guard"))))

        state = await agent.run("hi")

        turns = len(recorder.of(InferenceRequestStarted))
        assert state.step_count == turns
        assert state.usage.total_tokens == 15 * turns

    @pytest.mark.parametrize("error_class", [AgentStop, ValueError])
    @pytest.mark.parametrize("trigger", TRIGGERS)
    async def test_b033_what_earlier_hooks_of_the_moment_changed_is_kept(
        self, trigger, error_class
    ):
        agent, _ = reaching(
            trigger,
            make_hook(trigger, remembering("kept"), priority=1),
            make_hook(
                trigger, raising(error_class("boom" if error_class is ValueError else "guard"))
            ),
        )

        assert (await agent.run("hi")).metadata.get("kept") is True

    @pytest.mark.parametrize("trigger", TRIGGERS)
    async def test_a_vote_to_stop_ends_the_run_with_its_reason(self, trigger):
        hook = make_hook(trigger, lambda c: c.stop("too hot", reason="guard", source="sensor"))
        agent, recorder = reaching(trigger, hook)

        state = await agent.run("hi")

        assert state.status is AgentStatus.STOPPED
        assert state.stop.resolved_by == "sensor"
        assert recorder.of(AgentFinished)[0].outcome == state.stop

    async def test_a_stop_before_the_execution_runs_nothing(self):
        agent, recorder = modelled(make_hook("before_execution", lambda c: c.stop("closed")))

        state = await agent.run("hi")

        assert state.step_count == 0
        assert recorder.of(AgentStepStarted) == []
        assert len(recorder.of(ContinuationEvaluated)) == 1

    async def test_a_signal_after_the_execution_corrects_the_outcome_everywhere(self):
        signal = StopSignal(reason=StopReason.GUARD, message="audit failed", source="audit")
        hook = make_hook("after_execution", lambda c: c.with_state(c.state.with_signal(signal)))
        agent, recorder = modelled(hook, turns=["Done."])

        state = await agent.run("hi")

        assert state.stop.resolved_by == "audit"
        assert recorder.of(ContinuationEvaluated)[-1].outcome == state.stop
        assert state.steps[-1].outcome == state.stop


class RaisingDriver:
    """Raises what it is given, after preparing a step or before."""

    def __init__(self, error, *, prepares=False):
        self._error = error
        self._prepares = prepares

    async def use_tools(self, state):
        if self._prepares:
            state = state.with_current_step(AgentStep(messages=(Message.assistant("Half."),)))
        raise self._error


class TestDriversThatRaise:
    @pytest.mark.parametrize("prepares", [True, False])
    async def test_b048_b049_a_failure_step_with_the_exception_is_recorded(self, prepares):
        recorder = EventRecorder()
        agent = Agent(driver=RaisingDriver(RuntimeError("broken"), prepares=prepares))
        agent.wiretap(recorder)

        state = await agent.run("hi")

        assert state.status is AgentStatus.FAILED
        assert state.step_count == 1
        (error,) = state.steps[0].step.errors
        assert (error.exception, error.message) == ("RuntimeError", "broken")
        (completed,) = recorder.of(AgentStepCompleted)
        assert completed.errors == ("RuntimeError: broken",)
        assert completed.error_count == 1

    async def test_b049_the_failed_event_carries_the_exception(self):
        error = RuntimeError("broken")
        recorder = EventRecorder()
        agent = Agent(driver=RaisingDriver(error))
        agent.wiretap(recorder)

        await agent.run("hi")

        (failed,) = recorder.of(AgentFailed)
        assert failed.exception is error
        assert (failed.exception_type, failed.error) == ("RuntimeError", "RuntimeError: broken")

    async def test_a_driver_that_returns_no_step_fails_with_words_that_help(self):
        class Lazy:
            async def use_tools(self, state):
                return state

        state = await Agent(driver=Lazy()).run("hi")

        assert state.status is AgentStatus.FAILED
        assert "Lazy.use_tools returned a state without a step" in state.explain()
        assert state.steps[0].step.errors[0].type is ErrorType.UNKNOWN

    async def test_a_driver_that_returns_none_fails_as_data(self):
        class Silent:
            async def use_tools(self, state):
                return None

        assert (await Agent(driver=Silent()).run("hi")).status is AgentStatus.FAILED

    async def test_an_exception_whose_text_cannot_be_made_fails_as_data(self):
        class Unspeakable(Exception):
            def __str__(self):
                raise RuntimeError("no words")

        state = await Agent(driver=RaisingDriver(Unspeakable())).run("hi")

        assert state.status is AgentStatus.FAILED
        assert "Unspeakable" in state.explain()
