"""One model turn and its tool calls, as the loop sees them."""

from collections.abc import AsyncIterator

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    FinishReason,
    HookContext,
    Message,
    ModelError,
    ModelRequest,
    ModelResponse,
    StopReason,
    ToolCall,
    Usage,
    make_hook,
)
from stepwell.continuation import AgentStop
from stepwell.drivers import ToolCallingDriver
from stepwell.errors import ErrorType
from stepwell.events import StreamEventReceived
from stepwell.messages import TextPart, ThinkingPart
from stepwell.models import ResponseEnd, StreamPart, TextDelta, ThinkingDelta, ToolCallDelta
from stepwell.state import AgentStep, StepType, ToolOutcome
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call
from stepwell.tools import ToolExecutor


async def test_the_step_keeps_thinking_text_and_calls_in_that_order() -> None:
    response = ModelResponse(
        text="Let me see.",
        thinking=(ThinkingPart("hm", "sig"),),
        tool_calls=(call("look", id="c1"),),
        finish_reason=FinishReason.TOOL_CALLS,
        model="real-model",
    )
    state = await Agent(
        ScriptedModel([response, "ok"]), tools=[MockTool.returning("look", "seen")]
    ).run("Go")
    step = state.steps[0].step

    assert [type(part) for part in step.messages[0].parts] == [ThinkingPart, TextPart, ToolCall]
    assert step.text == "Let me see."
    assert step.step_type is StepType.TOOL_EXECUTION
    assert (step.finish_reason, step.model) == (FinishReason.TOOL_CALLS, "real-model")
    assert state.steps[1].step.step_type is StepType.FINAL_RESPONSE


class MixedModel:
    """Streams thinking and pieces of a call beside text, as providers do."""

    name = "mixed"

    async def respond(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(text="Hello there", usage=Usage(input_tokens=1))

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        yield ThinkingDelta("secret thought")
        yield TextDelta("Hello")
        yield ToolCallDelta(index=0, arguments='{"a": 1}')
        yield TextDelta(" there")
        yield ResponseEnd(await self.respond(request))


async def test_only_text_leaves_as_stream_events() -> None:
    recorder = EventRecorder()
    agent = Agent(MixedModel())
    agent.on_event(StreamEventReceived, recorder)
    state = await agent.run("Go")

    contents = [event.content for event in recorder.of(StreamEventReceived)]
    assert contents == ["Hello", " there", ""]
    assert state.final_response == "Hello there"


async def test_streamed_or_not_the_final_state_is_the_same() -> None:
    heard, unheard = Agent(MixedModel()), Agent(MixedModel())
    heard.wiretap(lambda event: None)
    one, other = await heard.run("Go"), await unheard.run("Go")

    assert one.final_response == other.final_response
    assert one.usage == other.usage
    assert [m.parts for m in one.messages] == [m.parts for m in other.messages]


class UnfinishedModel(MixedModel):
    name = "unfinished"

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        yield TextDelta("Hel")


async def test_a_stream_without_its_end_is_a_model_error() -> None:
    agent = Agent(UnfinishedModel())
    agent.wiretap(lambda event: None)
    state = await agent.run("Go")

    assert state.status is AgentStatus.FAILED
    [error] = state.steps[0].step.errors
    assert error.type is ErrorType.MODEL
    assert "unfinished ended without its final part" in error.message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelError("down"), ErrorType.MODEL),
        (ModelError("slow down", error_type=ErrorType.RATE_LIMIT), ErrorType.RATE_LIMIT),
        (TimeoutError("slow"), ErrorType.TIMEOUT),
        (ConnectionError("gone"), ErrorType.MODEL),
    ],
)
async def test_what_a_model_raises_is_an_error_step_of_its_kind(
    error: Exception, kind: ErrorType
) -> None:
    state = await Agent(ScriptedModel([error]), model_retries=0).run("Go")
    step = state.steps[0].step

    assert (state.status, step.step_type) == (AgentStatus.FAILED, StepType.ERROR)
    assert [info.type for info in step.errors] == [kind]
    assert step.messages == ()


async def test_the_last_step_at_a_limit_has_no_tools_and_refuses_calls() -> None:
    add = MockTool.returning("add", 3)
    turns = [call("add", id="c1"), ModelResponse(text="Sorry.", tool_calls=(call("add", id="c2"),))]
    model = ScriptedModel(turns)
    recorder = EventRecorder()
    agent = Agent(model, tools=[add], max_steps=1, at_limit="wrap_up")
    agent.wiretap(recorder)
    state = await agent.run("Go")

    assert len(add.calls) == 1
    assert model.requests[1].tools == ()
    assert model.requests[1].instruction is not None
    assert "no tool can be called" in model.requests[1].instruction.text
    assert state.steps[1].step.tool_executions[0].outcome is ToolOutcome.BLOCKED
    assert "ToolCallBlocked" in recorder.names
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.STEPS_LIMIT


async def test_the_wrap_up_instruction_is_not_kept_in_the_conversation() -> None:
    model = ScriptedModel([call("add", id="c1"), "Half done."])
    agent = Agent(model, tools=[MockTool.returning("add", 3)], max_steps=1, at_limit="wrap_up")
    state = await agent.run("Go")

    assert state.final_response == "Half done."
    assert not any(message.is_system() for message in state.messages)


async def test_b267_the_request_holds_the_conversation_and_what_this_execution_did() -> None:
    """SPEC 5 wins: calls and results are messages and messages stay, so the calls of an earlier
    execution are sent as well; what was said for its turns only is not."""
    model = ScriptedModel([call("look"), "A cat, I think.", call("look"), "A dog."])
    agent = Agent(
        model, tools=[MockTool.returning("look", "seen")], max_steps=1, at_limit="wrap_up"
    )
    first = await agent.run("What is it?")
    again = first.with_user_message("Look again.")
    second = await agent.run(again)

    assert [message.role for message in again.messages] == [
        *("user", "assistant", "tool", "assistant", "user")
    ]
    *_, before, after = (list(request.messages) for request in model.requests)
    assert before == list(again.messages)
    assert after == [*again.messages, *second.steps[0].step.messages]
    assert [request.instruction is None for request in model.requests] == [
        *(True, False, True, False)
    ]


class SilentDriver:
    async def use_tools(self, state: AgentState) -> AgentState:
        return state


async def test_a_driver_that_returns_no_step_is_told_what_to_return() -> None:
    state = await Agent(driver=SilentDriver()).run("Go")

    assert state.status is AgentStatus.FAILED
    assert "SilentDriver.use_tools returned a state without a step" in state.explain()
    assert "with_current_step" in state.explain()


class OneLineDriver:
    """The least a driver of one's own must do."""

    async def use_tools(self, state: AgentState) -> AgentState:
        said = Message.assistant(f"Step {state.step_number}.")
        return state.with_current_step(AgentStep(messages=(said,)))


async def test_an_own_driver_needs_one_method() -> None:
    state = await Agent(driver=OneLineDriver()).run("Go")

    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "Step 1.")


async def test_a_driver_can_be_put_together_by_hand() -> None:
    driver = ToolCallingDriver(ScriptedModel(["By hand."]), ToolExecutor())
    state = await Agent(driver=driver).run("Go")

    assert state.final_response == "By hand."


@pytest.mark.parametrize("trigger", ["before_inference", "after_inference"])
async def test_a_hook_may_stop_the_run_around_the_inference(trigger: str) -> None:
    def stop(context: HookContext) -> None:
        raise AgentStop(StopReason.GUARD, "budget meeting")

    model = ScriptedModel(["Hi."])
    state = await Agent(model, hooks=[make_hook(trigger, stop)]).run("Go")

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.GUARD
    assert "budget meeting" in state.explain()
    assert len(model.requests) == (0 if trigger == "before_inference" else 1)


async def test_b033_a_stop_after_the_inference_keeps_what_the_model_used() -> None:
    def stop(context: HookContext) -> None:
        raise AgentStop(StopReason.GUARD, "enough")

    model = ScriptedModel(["Hi."], usage=Usage(input_tokens=10, output_tokens=5), cost=0.5)
    state = await Agent(model, hooks=[make_hook("after_inference", stop)]).run("Go")

    assert state.usage.total_tokens == 15
    assert state.cost == 0.5


async def test_state_changes_of_inference_hooks_are_kept() -> None:
    def note(context: HookContext) -> HookContext:
        seen = (*context.state.metadata.get("seen", ()), str(context.trigger))
        return context.with_state(context.state.with_metadata({"seen": seen}))

    hook = make_hook(["before_inference", "after_inference"], note)
    state = await Agent(ScriptedModel(["Hi."]), hooks=[hook]).run("Go")

    assert state.metadata["seen"] == ("before_inference", "after_inference")
