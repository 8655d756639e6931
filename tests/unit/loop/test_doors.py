"""What comes in from own models, drivers, hooks, criteria and tools is checked where it enters.

Whatever is wrong with it ends up in the state, with a text that names it; nothing leaves ``run``.
"""

import asyncio
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentState,
    AgentStatus,
    Cancellation,
    ContinuationCriteria,
    ContinuationDecision,
    ContinuationEvaluation,
    ErrorPolicy,
    InputRequired,
    Message,
    ModelRequest,
    ModelResponse,
    StopReason,
    TextDelta,
    ToolCall,
    ToolOutput,
    make_hook,
)
from stepwell.continuation import AgentStop, StopSignal
from stepwell.state import AgentStep
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call


class OwnModel:
    """A model with only ``respond``; everything else is optional."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    async def respond(self, request: ModelRequest) -> Any:
        self.asked += 1
        return self.answer


class OwnDriver:
    def __init__(self, step: Any) -> None:
        self.step = step

    async def use_tools(self, state: AgentState) -> Any:
        return state.with_current_step(self.step) if self.step is not None else None


def error_of(state: AgentState) -> str:
    assert state.status is AgentStatus.FAILED
    return state.explain()


class TestModels:
    async def test_a_model_with_only_respond_runs_and_streams(self) -> None:
        agent = Agent(OwnModel(ModelResponse(text="hello there")))
        assert (await agent.run("Hi.")).final_response == "hello there"
        parts = [part async for part in agent.stream("Hi.")]
        assert TextDelta("hello there") in parts

    async def test_a_listener_does_not_change_whether_such_a_model_works(self) -> None:
        agent = Agent(OwnModel(ModelResponse(text="hello")))
        recorder = EventRecorder()
        agent.wiretap(recorder)
        assert (await agent.run("Hi.")).status is AgentStatus.COMPLETED
        assert "OwnModel" in {getattr(event, "model", None) for event in recorder.events}

    @pytest.mark.parametrize(
        ("answer", "complaint"),
        [
            ("just text", "model OwnModel returned a str"),
            ({"text": "x"}, "model OwnModel returned a dict"),
            (ModelResponse(text=7), "returned a int as text"),
            (ModelResponse(text="x", usage={"input_tokens": 1}), "as usage"),
            (ModelResponse(text="x", cost=None), "returned None as cost"),
            (
                ModelResponse(tool_calls=(ToolCall(id="1", name="t", arguments='{"a": 1}'),)),
                "arguments are a dict",
            ),
        ],
    )
    async def test_a_wrong_response_is_named(self, answer: Any, complaint: str) -> None:
        assert complaint in error_of(await Agent(OwnModel(answer)).run("Hi."))

    async def test_no_text_beside_tool_calls_is_fine(self) -> None:
        calls = (ToolCall(id="1", name="ping"),)
        script = iter([ModelResponse(text=None, tool_calls=calls), "done"])
        agent = Agent(
            ScriptedModel(lambda _: next(script)), tools=[MockTool.returning("ping", "pong")]
        )
        assert (await agent.run("Hi.")).final_response == "done"


class TestDrivers:
    @pytest.mark.parametrize(
        ("step", "complaint"),
        [
            (None, "OwnDriver.use_tools returned a NoneType"),
            (AgentStep(messages=("hi",)), "messages are not Messages"),
            (
                AgentStep(messages=(Message.assistant("", [call("ping", id="1")]),)),
                "1 tool calls and 0 results",
            ),
        ],
    )
    async def test_a_wrong_step_is_named(self, step: Any, complaint: str) -> None:
        state = await Agent(driver=OwnDriver(step)).run("Hi.")
        assert complaint in error_of(state)
        assert len(state.messages) == 1

    async def test_a_deadline_reaches_an_own_driver(self) -> None:
        class SlowDriver:
            async def use_tools(self, state: AgentState) -> AgentState:
                await asyncio.sleep(60)
                return state

        state = await Agent(driver=SlowDriver(), timeout=0.05).run("Hi.")
        assert state.stop.stop_reason is StopReason.TIME_LIMIT
        assert "SlowDriver was running and was cancelled" in state.explain()


class TestHooks:
    async def test_a_processor_that_forgets_to_return_is_named(self) -> None:
        def forgetful(state: AgentState) -> None:
            pass

        builder = AgentBuilder.base().with_model(ScriptedModel(["hi"]))
        state = await builder.add_processor(forgetful).build().run("Hi.")
        assert "forgetful" in error_of(state)
        assert "NoneType as state" in error_of(state)

    async def test_what_has_no_effect_at_a_moment_is_named(self) -> None:
        def late(context: Any) -> Any:
            return context.block("too late")

        hook = make_hook("after_tool", late)
        tools = [MockTool.returning("ping", "pong")]
        state = await Agent(ScriptedModel([call("ping")]), tools=tools, hooks=[hook]).run("Go.")
        assert "no effect at after_tool; register the hook for before_tool" in error_of(state)

    @pytest.mark.parametrize("trigger", ["before_execution", "before_step", "before_inference"])
    async def test_cancelling_during_a_hook_asks_no_model(self, trigger: str) -> None:
        cancellation = Cancellation()
        model = OwnModel(ModelResponse(text="hello"))

        async def slow(_context: Any) -> None:
            cancellation.request("enough")
            await asyncio.Event().wait()

        agent = Agent(model, hooks=[make_hook(trigger, slow)])
        state = await agent.run("Hi.", cancellation=cancellation)
        assert (state.status, model.asked) == (AgentStatus.CANCELLED, 0)


class TestVotes:
    async def test_a_vote_with_plain_words_counts(self) -> None:
        def guard(_state: AgentState) -> ContinuationEvaluation:
            return ContinuationEvaluation(
                criterion="guard", decision="forbid", reason="no", stop_reason="guard"
            )

        model = ScriptedModel(["never said"])
        state = await Agent(model, criteria=[ContinuationCriteria.when(guard)]).run("Hi.")
        assert (state.stop.stop_reason, model.requests) == (StopReason.GUARD, [])

    async def test_an_unknown_word_in_a_vote_fails_the_run(self) -> None:
        def odd(_state: AgentState) -> ContinuationEvaluation:
            return ContinuationEvaluation(criterion="odd", decision="perhaps", reason="?")

        agent = Agent(ScriptedModel(["hi"]), criteria=[ContinuationCriteria.when(odd)])
        assert "'perhaps'" in error_of(await agent.run("Hi."))

    async def test_an_own_criterion_is_asked_before_each_step(self) -> None:
        def watch(state: AgentState) -> ContinuationDecision:
            stop = state.metadata.get("stop")
            return ContinuationDecision.FORBID if stop else ContinuationDecision.ALLOW

        agent = Agent(
            ScriptedModel(lambda _: call("ping")),
            tools=[MockTool.returning("ping", "pong")],
            criteria=[ContinuationCriteria.when(watch)],
        )
        state = await agent.next_step("Go.")
        stopped = await agent.next_step(state.with_metadata({"stop": True}))
        assert (stopped.step_count, stopped.stop.resolved_by) == (1, "watch")

    async def test_a_request_that_was_counted_is_not_needed_again(self) -> None:
        """B41, also when there are own criteria that are asked before the step."""

        def once(context: Any) -> Any:
            return context.request_step("again") if context.state.step_count == 1 else None

        agent = Agent(
            ScriptedModel(["first", "second"]),
            hooks=[make_hook("after_step", once)],
            criteria=[ContinuationCriteria.when(lambda _: ContinuationDecision.ALLOW)],
        )
        assert (await agent.run("Go.")).final_response == "second"

    async def test_a_stop_with_only_a_message_stops(self) -> None:
        tool = MockTool.raising("ping", AgentStop("all done"))
        state = await Agent(ScriptedModel([call("ping")]), tools=[tool]).run("Go.")
        assert (state.stop.stop_reason, state.status) == ("stop_requested", AgentStatus.STOPPED)
        assert "all done" in state.explain()


class TestTools:
    @pytest.mark.parametrize("odd", [{"metadata": ["last"]}, {"cost": None}, {"usage": 7}])
    async def test_a_wrong_output_loses_neither_call_nor_tokens(self, odd: dict[str, Any]) -> None:
        tool = MockTool.returning("pay", ToolOutput(value="paid", **odd))
        agent = Agent(
            ScriptedModel([call("pay"), "done"]),
            tools=[tool],
            error_policy=ErrorPolicy.retry_tool_errors(3),
        )
        state = await agent.run("Pay.")
        assert (state.final_response, len(tool.calls)) == ("done", 1)
        assert f"ToolOutput.{next(iter(odd))}" in state.steps[0].step.tool_executions[0].text
        assert state.usage.total_tokens == 30


class TestAnswers:
    def asking(self, *turns: Any) -> Agent:
        tool = MockTool.returning("ask", InputRequired(prompt="Which?"))
        return Agent(ScriptedModel([call("ask"), *turns]), tools=[tool])

    async def test_the_answer_is_in_the_step_and_in_the_messages(self) -> None:
        agent = self.asking("ok")
        paused = await agent.run("Go.")
        answered = paused.with_answer(paused.pending[0], {"city": "Paris"})
        execution = answered.steps[0].step.tool_executions[0]
        assert (execution.outcome, execution.value) == ("completed", {"city": "Paris"})
        assert answered.messages[-1].text == execution.text == '{"city":"Paris"}'
        assert paused.steps[0].step.tool_executions[0].outcome == "pending"

    async def test_without_an_answer_the_history_says_so(self) -> None:
        agent = self.asking("ok")
        paused = await agent.run("Go.")
        cancellation = Cancellation()
        cancellation.request()
        state = await agent.run(paused, cancellation=cancellation)
        assert state.status is AgentStatus.CANCELLED
        assert "no answer was given" in state.messages[-1].text
        assert state.messages[-1].tool_result.is_error
        assert state.steps[0].step.tool_executions[0].outcome == "not_run"


def test_a_signal_with_a_plain_word_is_a_signal() -> None:
    assert StopSignal(reason="guard").reason is StopReason.GUARD
