"""The driver for models that decide in JSON: what is asked, what is made of it, what is kept."""

import asyncio
import json
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stepwell import (
    Agent,
    AgentBuilder,
    AgentState,
    AgentStatus,
    Cancellation,
    ConfigurationError,
    ErrorPolicy,
    Final,
    FinishReason,
    HookContext,
    InputRequired,
    Message,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolOutput,
    Tools,
    ToolStarted,
    Usage,
    make_hook,
)
from stepwell.continuation import AgentStop
from stepwell.drivers import BindableDriver, ReActDriver
from stepwell.errors import ErrorType
from stepwell.events import (
    AgentFailed,
    AgentFinished,
    InferenceRequestStarted,
    InferenceResponseReceived,
    StreamEventReceived,
)
from stepwell.hooks import HookStack
from stepwell.messages import Role, ThinkingPart, ToolResult
from stepwell.models import CachedContext
from stepwell.state import StepType, ToolOutcome
from stepwell.testing import EventRecorder, FakeClock, MockTool, ScriptedModel, SequentialIds, call
from stepwell.tools import ToolExecutor
from tests.examples import examples


def calling(tool: str, args: Any = None, thought: str = "") -> str:
    return json.dumps({"thought": thought, "type": "call_tool", "tool": tool, "args": args})


def answering(text: str, thought: str = "") -> str:
    return json.dumps({"thought": thought, "type": "final_answer", "answer": text})


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent_of(
    turns: Sequence[Any],
    *tools: Any,
    policy: ErrorPolicy | None = None,
    final_via_inference: bool = False,
    max_extraction_retries: int = 2,
    **options: Any,
) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(turns, cost=0.5)
    driver = ReActDriver(
        model,
        final_via_inference=final_via_inference,
        max_extraction_retries=max_extraction_retries,
    )
    return Agent(driver=driver, tools=tools or [add], error_policy=policy, **options), model


def texts(request: ModelRequest) -> list[tuple[str, str]]:
    return [(str(message.role), message.text) for message in request.messages]


def is_valid(state: AgentState) -> bool:
    """Each call of an assistant message has its result right behind it, in order."""
    messages = list(state.messages)
    expected: list[str] = []
    for message in messages:
        if message.tool_result is not None:
            if not expected or message.tool_result.call_id != expected.pop(0):
                return False
        elif expected:
            return False
        expected.extend(c.id for c in message.tool_calls)
    return not expected


# What a step is


async def test_b228_a_tool_call_and_an_answer_are_two_steps() -> None:
    agent, _ = agent_of(
        [calling("add", {"a": 1, "b": 2}, "Adding helps."), answering("Three.", "Done.")]
    )
    state = await agent.run("What is 1 + 2?")
    first, second = (recorded.step for recorded in state.steps)

    assert state.status is AgentStatus.COMPLETED
    assert (first.step_type, second.step_type) == (
        StepType.TOOL_EXECUTION,
        StepType.FINAL_RESPONSE,
    )
    assert [(e.call.name, e.value) for e in first.tool_executions] == [("add", 3)]
    assert (first.finish_reason, second.finish_reason) == (
        FinishReason.TOOL_CALLS,
        FinishReason.STOP,
    )
    assert state.final_response == "Three."
    assert [part for m in state.messages for part in m.parts if isinstance(part, ThinkingPart)] == [
        ThinkingPart("Adding helps.", origin="react"),
        ThinkingPart("Done.", origin="react"),
    ]
    assert is_valid(state)


async def test_the_model_is_sent_plain_text_and_no_tools() -> None:
    agent, model = agent_of(
        [calling("add", {"a": 1, "b": 2}, "Adding helps."), answering("Three.")]
    )
    await agent.run("What is 1 + 2?")
    first, second = model.requests

    assert first.tools == second.tools == ()
    assert texts(first) == [("user", "What is 1 + 2?")]
    assert texts(second)[1:] == [
        (
            "assistant",
            '{"thought":"Adding helps.","type":"call_tool","tool":"add","args":{"a":1,"b":2}}',
        ),
        ("user", "Observation: 3"),
    ]
    assert [type(p).__name__ for m in second.messages for p in m.parts] == ["TextPart"] * 3


async def test_the_format_names_the_fields_the_tools_and_no_strictness() -> None:
    agent, model = agent_of([answering("Hi.")], add, MockTool.returning("look", "x"))
    await agent.run("Go")
    form = model.requests[0].format

    assert form is not None
    assert form.schema is not None
    assert (form.name, form.strict) == ("decision", False)
    assert form.schema["properties"]["type"]["enum"] == ["call_tool", "final_answer"]
    assert form.schema["properties"]["tool"]["enum"] == ["add", "look"]
    assert list(form.schema["properties"]) == ["thought", "type", "tool", "args", "answer"]


async def test_the_start_of_the_prompt_is_the_same_in_every_turn() -> None:
    agent, model = agent_of(
        ["no JSON", calling("add", {"a": 1, "b": 2}), answering("Three.")],
        system_prompt="You can count.",
    )
    await agent.run("What is 1 + 2?")
    start = model.requests[0].context.messages

    assert start[0].text == "You can count."
    assert "Add two numbers." in start[1].text
    assert '"a":{"type":"integer"}' in start[1].text
    assert len(start) == 2
    assert all(request.context.messages == start for request in model.requests)


async def test_earlier_answers_and_native_calls_are_told_as_decisions() -> None:
    agent, model = agent_of([answering("Bye.")])
    result = ToolResult(call_id="c1", tool_name="add", content="Error: no", is_error=True)
    state = AgentState.empty().with_messages(
        [
            Message.user("Hello"),
            Message.assistant("Hm.", [call("add", id="c1", a=1)]),
            Message.tool(result),
            Message.assistant("Hi there."),
            Message.user("Go"),
        ]
    )
    await agent.run(state)
    messages = model.requests[0].messages

    assert texts(model.requests[0]) == [
        ("user", "Hello"),
        ("assistant", '{"thought":"Hm.","type":"call_tool","tool":"add","args":{"a":1}}'),
        ("user", "Observation: ERROR: no"),
        ("assistant", '{"thought":"","type":"final_answer","answer":"Hi there."}'),
        ("user", "Go"),
    ]
    assert len(messages) == 5
    assert messages[-1].text == "Go"
    assert [m.text for m in messages[-2:]] == [messages[3].text, "Go"]
    assert "Observation: ERROR" in repr(messages)


async def test_arguments_that_other_code_wrote_are_told_as_well_as_can_be() -> None:
    agent, model = agent_of([answering("Bye.")])
    odd = ToolCall(id="c1", name="add", arguments=MappingProxyType({"a": Role.USER, "b": 1 + 2j}))
    result = ToolResult(call_id="c1", tool_name="add", content="3")
    said = Message.assistant("", [odd])
    await agent.run(AgentState.empty().with_messages([said, Message.tool(result)]))

    assert '"args":{"a":"user","b":"(1+2j)"}' in texts(model.requests[0])[0][1]


async def test_calls_in_the_cached_context_are_told_as_text_too() -> None:
    agent, model = agent_of(
        [answering("Bye.")],
        cached_context=CachedContext(messages=(Message.assistant("", [call("add", id="c", a=1)]),)),
    )
    await agent.run("Go")

    assert '"type":"call_tool"' in model.requests[0].context.messages[0].text
    assert not model.requests[0].context.messages[0].tool_calls


async def test_the_thinking_of_a_provider_is_kept_but_not_sent_again() -> None:
    thinking = ThinkingPart("deep", "signature", origin="acme")
    turn = ModelResponse(text=calling("add", {"a": 1, "b": 2}), thinking=(thinking,))
    agent, model = agent_of([turn, answering("Three.")])
    state = await agent.run("Go")

    assert thinking in state.messages[1].parts
    assert all(not isinstance(p, ThinkingPart) for m in model.requests[1].messages for p in m.parts)


# Replies that are no decision


@pytest.mark.parametrize(
    "reply",
    [
        "```json\n{}\n```",
        "My decision: {}",
        "  {}\n\n",
    ],
)
async def test_fences_and_words_around_a_decision_do_no_harm(reply: str) -> None:
    agent, model = agent_of([reply.replace("{}", answering("Hi."))])
    state = await agent.run("Go")

    assert state.final_response == "Hi."
    assert len(model.requests) == 1


async def test_b229_malformed_json_is_asked_again_and_then_fails_the_step() -> None:
    agent, model = agent_of(["{oops", "still no JSON", "", answering("too late")])
    state = await agent.run("Go")
    step = state.steps[0].step

    assert (state.status, step.step_type) == (AgentStatus.FAILED, StepType.ERROR)
    assert [error.type for error in step.errors] == [ErrorType.VALIDATION]
    assert "no usable decision in 3 replies; the last time the reply is empty" in state.explain()
    assert len(model.requests) == 3
    assert step.messages == ()
    assert [m.text for m in state.messages] == ["Go"]


async def test_b229_the_complaint_is_told_to_the_model_and_not_kept() -> None:
    agent, model = agent_of(["{oops", answering("Sorry. Hi.")])
    state = await agent.run("Go")
    told = model.requests[1].instruction

    assert model.requests[0].instruction is None
    assert told is not None
    assert "the reply is not a JSON object: {oops" in told.text
    assert texts(model.requests[1]) == [("user", "Go")]
    assert [m.text for m in state.messages] == ["Go", "Sorry. Hi."]
    assert not state.had_errors


async def test_b229_the_error_policy_decides_about_it() -> None:
    agent, model = agent_of(
        ["no", answering("Now it works.")],
        max_extraction_retries=0,
        policy=ErrorPolicy.retry_tool_errors(3),
        clock=FakeClock(),
    )
    state = await agent.run("Go")

    assert [recorded.step.step_type for recorded in state.steps] == [
        StepType.ERROR,
        StepType.FINAL_RESPONSE,
    ]
    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, True)
    assert "in 1 reply;" in state.steps[0].step.errors[0].message
    assert len(model.requests) == 2


async def test_a_reply_that_was_cut_off_is_asked_for_more_briefly() -> None:
    cut = ModelResponse(text='{"thought": "I wonder', finish_reason=FinishReason.LENGTH)
    agent, model = agent_of([cut, answering("Hi.")])
    await agent.run("Go")

    assert model.requests[1].instruction is not None
    assert "cut off at the limit of tokens" in model.requests[1].instruction.text


async def test_b154_a_decision_failure_ends_with_one_terminal_status() -> None:
    agent, _ = agent_of(["no", "no", "no"])
    recorder = EventRecorder()
    agent.wiretap(recorder)
    state = await agent.run("Go")

    assert state.is_finished
    assert [event.status for event in recorder.of(AgentFinished)] == [AgentStatus.FAILED]
    assert [event.exception_type for event in recorder.of(AgentFailed)] == ["ModelError"]


@pytest.mark.parametrize(
    ("reply", "field"),
    [
        ({"type": "ponder"}, "type"),
        ({"thought": "hm"}, "type"),
        ({"type": ["call_tool"]}, "type"),
        ({"type": "call_tool", "args": {}}, "tool"),
        ({"type": "call_tool", "tool": " ", "args": {}}, "tool"),
        ({"type": "call_tool", "tool": 7}, "tool"),
        ({"type": "final_answer"}, "answer"),
        ({"type": "final_answer", "answer": " \n"}, "answer"),
        ({"type": "final_answer", "answer": []}, "answer"),
        ({"type": "final_answer", "answer": "x", "thought": ["a"]}, "thought"),
    ],
)
async def test_b232_what_does_not_fit_is_named(reply: dict[str, Any], field: str) -> None:
    agent, _ = agent_of([json.dumps(reply)], max_extraction_retries=0)
    state = await agent.run("Go")
    [error] = state.steps[0].step.errors

    assert error.type is ErrorType.VALIDATION
    assert f'field "{field}" must' in error.message


async def test_the_complaint_about_a_missing_tool_name_lists_the_tools() -> None:
    agent, model = agent_of([calling(""), answering("Hi.")])
    await agent.run("Go")

    assert model.requests[1].instruction is not None
    assert "tools: add" in model.requests[1].instruction.text


async def test_json_nested_too_deep_to_read_is_a_validation_error() -> None:
    deep = '{"type":' + "[" * 100_000
    agent, _ = agent_of([deep], max_extraction_retries=0)
    state = await agent.run("Go")

    assert [error.type for error in state.steps[0].step.errors] == [ErrorType.VALIDATION]


# Calls that cannot be run


async def test_b230_an_unknown_tool_is_an_error_step_and_an_observation() -> None:
    agent, model = agent_of(
        [calling("fly"), answering("I can't fly.")], policy=ErrorPolicy.retry_tool_errors(3)
    )
    state = await agent.run("Fly")
    step = state.steps[0].step

    assert step.step_type is StepType.ERROR
    assert [(e.type, e.exception, e.tool_name) for e in step.errors] == [
        (ErrorType.TOOL, "ToolNotFoundError", "fly")
    ]
    assert step.tool_executions[0].outcome is ToolOutcome.NOT_FOUND
    assert texts(model.requests[1])[-1] == (
        "user",
        "Observation: ERROR: Tool 'fly' not found. Available tools: add.",
    )
    assert state.final_response == "I can't fly."
    assert is_valid(state)


async def test_b230_the_default_policy_stops_at_an_unknown_tool() -> None:
    agent, model = agent_of([calling("fly"), answering("I can't fly.")])
    state = await agent.run("Fly")

    assert state.status is AgentStatus.FAILED
    assert "Tool 'fly' not found" in state.explain()
    assert len(model.requests) == 1


async def test_a_hook_may_stand_in_for_a_tool_that_does_not_exist() -> None:
    def pretend(context: HookContext) -> HookContext:
        return context.with_result("up and away")

    agent, model = agent_of(
        [calling("fly"), answering("Done.")], hooks=[make_hook("before_tool", pretend)]
    )
    state = await agent.run("Fly")

    assert not state.had_errors
    assert texts(model.requests[1])[-1] == ("user", "Observation: up and away")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        pytest.param({"a": 1}, "missing required arguments: b", id="b231 one argument is missing"),
        pytest.param([1, 2], "not a JSON object: [1,2]", id="b233 a list"),
        pytest.param([], "not a JSON object: []", id="b233 an empty list"),
        pytest.param({}, "missing required arguments: a, b", id="b233 empty although required"),
        pytest.param(None, "missing required arguments: a, b", id="b233 null although required"),
        pytest.param("1 and 2", 'not a JSON object: "1 and 2"', id="b233 words"),
        pytest.param({"a": "x", "b": 2}, "a: Input should be a valid integer", id="b231 a type"),
    ],
)
async def test_b231_b233_bad_arguments_are_an_error_observation(args: Any, complaint: str) -> None:
    agent, model = agent_of(
        [calling("add", args), answering("Sorry.")], policy=ErrorPolicy.retry_tool_errors(3)
    )
    state = await agent.run("Go")
    role, text = texts(model.requests[1])[-1]

    assert role == "user"
    assert text.startswith("Observation: ERROR: ")
    assert complaint in text
    assert [error.type for error in state.steps[0].step.errors] == [ErrorType.VALIDATION]
    assert state.final_response == "Sorry."
    assert is_valid(state)


async def test_arguments_written_as_json_text_are_understood() -> None:
    agent, _ = agent_of([calling("add", '{"a": 1, "b": 2}'), answering("3")])
    state = await agent.run("Go")

    assert state.steps[0].step.tool_executions[0].value == 3


async def test_arguments_may_be_left_out_where_none_are_needed() -> None:
    look = MockTool.returning("look", "seen")
    agent, _ = agent_of(['{"type": "call_tool", "tool": "look"}', answering("ok")], look)
    state = await agent.run("Go")

    assert look.calls == [{}]
    assert state.status is AgentStatus.COMPLETED


async def test_b237_without_tools_a_call_is_an_error_observation() -> None:
    model = ScriptedModel([calling("add", {"a": 1}), answering("I have no tools.")])
    agent = Agent(driver=ReActDriver(model), error_policy=ErrorPolicy.retry_tool_errors(3))
    state = await agent.run("Go")
    form = model.requests[0].format

    assert form is not None
    assert form.schema is not None
    assert form.schema["properties"]["type"]["enum"] == ["final_answer"]
    assert "There are no tools." in model.requests[0].context.messages[-1].text
    assert "Observation: ERROR: Tool 'add' not found" in texts(model.requests[1])[-1][1]
    assert state.final_response == "I have no tools."


async def test_what_a_tool_raises_is_an_observation() -> None:
    broken = MockTool.raising("look", ValueError("no light"))
    agent, model = agent_of(
        [calling("look"), answering("Dark.")], broken, policy=ErrorPolicy.retry_tool_errors(3)
    )
    state = await agent.run("Go")

    assert texts(model.requests[1])[-1][1] == (
        "Observation: ERROR: tool 'look' failed: ValueError: no light"
    )
    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, True)


async def test_a_question_pauses_the_run_and_its_answer_is_an_observation() -> None:
    ask = MockTool.returning("ask", InputRequired(prompt="Which one?"))
    agent, model = agent_of([calling("ask"), answering("The red one.")], ask)
    paused = await agent.run("Go")
    state = await agent.run(paused.with_answer(paused.pending[0], "red"))

    assert paused.status is AgentStatus.PAUSED
    assert texts(model.requests[1])[-1] == ("user", "Observation: red")
    assert state.final_response == "The red one."


# The final answer by a turn of its own


async def test_b235_the_answer_comes_from_a_second_plain_call() -> None:
    agent, model = agent_of(
        [calling("add", {"a": 1, "b": 2}), '{"type": "final_answer"}', "It is three."],
        final_via_inference=True,
    )
    recorder = EventRecorder()
    agent.wiretap(recorder)
    state = await agent.run("What is 1 + 2?")
    decision, plain = model.requests[1:]

    assert state.final_response == "It is three."
    assert state.step_count == 2
    assert decision.format is not None
    assert (plain.format, plain.tools) == (None, ())
    assert plain.context == decision.context
    assert texts(plain) == texts(decision)
    assert plain.instruction is not None
    assert "Write your answer to the user now" in plain.instruction.text
    assert state.steps[1].step.usage == Usage(input_tokens=20, output_tokens=10)
    assert state.steps[1].step.cost == 1.0
    ids = [event.inference_id for event in recorder.of(InferenceRequestStarted)]
    assert ids == [event.inference_id for event in recorder.of(InferenceResponseReceived)]
    assert len(set(ids)) == 3
    assert ids[2] == f"{ids[1]}:2"


async def test_b235_only_the_answer_is_streamed() -> None:
    agent, _ = agent_of([answering("ignored", "Easy."), "It is three."], final_via_inference=True)
    recorder = EventRecorder()
    agent.wiretap(recorder)
    await agent.run("Go")
    chunks = recorder.of(StreamEventReceived)

    assert [c.content for c in chunks] == ["It", " is", " three.", ""]
    assert [c.chunk_index for c in chunks] == [0, 1, 2, 3]
    assert [c.is_complete for c in chunks] == [False, False, False, True]


async def test_b235_a_wanted_response_format_is_that_of_the_answer() -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}}
    agent, model = agent_of(
        ['{"type": "final_answer"}', '{"sum": 3}'],
        final_via_inference=True,
        response_format=schema,
    )
    state = await agent.run("Go")

    assert model.requests[1].response_format == schema
    assert state.final_response == '{"sum": 3}'


async def test_a_wanted_response_format_is_explained_where_the_answer_is_in_the_decision() -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}}
    agent, model = agent_of([answering('{"sum": 3}')], response_format=schema)
    state = await agent.run("Go")

    assert json.dumps(schema, separators=(",", ":")) in model.requests[0].context.messages[-1].text
    assert model.requests[0].context.response_format is None
    assert state.final_response == '{"sum": 3}'


async def test_b235_a_failure_of_the_second_call_is_an_error_step_that_counts_both() -> None:
    failure = ModelError("too busy", usage=Usage(input_tokens=1), cost=0.25)
    agent, _ = agent_of(['{"type": "final_answer"}', failure], final_via_inference=True)
    state = await agent.run("Go")
    step = state.steps[0].step

    assert state.status is AgentStatus.FAILED
    assert [error.message for error in step.errors] == ["too busy"]
    assert step.usage == Usage(input_tokens=11, output_tokens=5)
    assert step.cost == 0.75


# Streaming and events


async def test_a_decision_never_leaks_into_the_stream() -> None:
    agent, _ = agent_of(
        ["{oops", calling("add", {"a": 1, "b": 2}, "Hm."), answering("Three it is.", "Easy.")]
    )
    recorder = EventRecorder()
    agent.wiretap(recorder)
    parts = [part async for part in agent.stream("Go")]
    chunks = recorder.of(StreamEventReceived)

    assert [(c.step_number, c.content, c.chunk_index, c.is_complete) for c in chunks] == [
        (2, "Three it is.", 0, False),
        (2, "", 1, True),
    ]
    assert [p.text for p in parts if isinstance(p, TextDelta)] == ["Three it is."]
    assert [p.text for p in parts if isinstance(p, ThinkingDelta)] == ["Hm.", "Easy."]
    assert [p.tool for p in parts if isinstance(p, ToolStarted)] == ["add"]


TURNS = [
    calling("add", {"a": 1, "b": 2}, "Hm."),
    "{oops",
    calling("fly"),
    calling("add", [1]),
    answering("Three.", "Easy."),
]


@pytest.mark.parametrize("final_via_inference", [False, True])
async def test_b236_all_doors_give_the_same_result(final_via_inference: bool) -> None:
    def fresh() -> Agent:
        agent, _ = agent_of(
            [*TURNS, "Three."],
            policy=ErrorPolicy.retry_all(5),
            final_via_inference=final_via_inference,
            clock=FakeClock(),
            new_id=SequentialIds(),
        )
        return agent

    run = await fresh().run("Go")
    iterated = [state async for state in fresh().iterator("Go")]
    parts = [part async for part in fresh().stream("Go")]
    by_hand = fresh()
    state = await by_hand.next_step("Go")
    while by_hand.has_next_step(state):
        state = await by_hand.next_step(state)

    assert run.final_response == "Three."
    assert run.step_count == len(iterated) == 4
    assert iterated[-1] == run
    assert parts[-1] == Final(run)
    assert state == run
    assert is_valid(run)


async def test_hooks_see_and_may_change_requests_and_responses() -> None:
    seen: list[tuple[str, int]] = []

    def look(context: HookContext) -> HookContext | None:
        if context.request is not None:
            seen.append(("request", len(context.request.messages)))
            louder = Message.system("Be loud.")
            messages = (*context.request.messages, louder)
            request = ModelRequest(messages=messages, context=context.request.context)
            return context.with_request(request)
        assert context.response is not None
        seen.append(("response", context.response.usage.total_tokens))
        text = context.response.text.replace("Three", "THREE")
        marked = context.with_state(context.state.with_metadata({"heard": True}))
        return marked.with_response(ModelResponse(text=text, usage=context.response.usage))

    agent, model = agent_of(
        [calling("add", {"a": 1, "b": 2}), answering("Three.")],
        hooks=[make_hook(["before_inference", "after_inference"], look)],
    )
    state = await agent.run("Go")

    assert seen == [("request", 1), ("response", 15), ("request", 3), ("response", 15)]
    assert model.requests[1].messages[-1].text == "Be loud."
    assert model.requests[1].messages[-2].text == "Observation: 3"
    assert state.final_response == "THREE."
    assert state.metadata["heard"] is True


# What is counted and kept when a step ends early


async def test_the_usage_of_all_turns_and_of_the_tool_is_counted() -> None:
    costly = MockTool.returning("costly", ToolOutput(value=1, usage=Usage(input_tokens=7), cost=2))
    agent, _ = agent_of(["no", calling("costly"), answering("Done.")], costly)
    state = await agent.run("Go")

    assert state.steps[0].step.usage == Usage(input_tokens=27, output_tokens=10)
    assert state.steps[0].step.cost == 3.0
    assert (state.usage, state.cost) == (Usage(input_tokens=37, output_tokens=15), 3.5)


async def test_the_usage_of_a_failed_decision_is_counted() -> None:
    agent, _ = agent_of(["no", "no", "no"])
    state = await agent.run("Go")

    assert state.usage == Usage(input_tokens=30, output_tokens=15)
    assert state.cost == 1.5


@pytest.mark.parametrize("failure", [ModelError("down", retry_after=3.0), TimeoutError("slow")])
async def test_the_usage_before_a_failed_turn_is_counted(failure: Exception) -> None:
    agent, _ = agent_of(["no", failure])
    state = await agent.run("Go")
    [error] = state.steps[0].step.errors

    assert state.usage == Usage(input_tokens=10, output_tokens=5)
    assert error.exception == type(failure).__name__
    assert error.retry_after == getattr(failure, "retry_after", None)


async def test_a_model_that_fails_at_once_is_an_error_step_like_any_other() -> None:
    agent, _ = agent_of([ModelError("429", kind="rate_limit")])
    caught: list[BaseException | None] = []
    state = await Agent.from_plan(
        replace(
            agent.plan.with_hook(make_hook("on_error", lambda c: caught.append(c.exception))),
            model_retries=0,
        )
    ).run("Go")

    assert [error.type for error in state.steps[0].step.errors] == [ErrorType.RATE_LIMIT]
    assert [str(error) for error in caught] == ["429"]


async def test_what_hooks_change_in_a_failing_step_is_kept() -> None:
    def count(context: HookContext) -> HookContext:
        heard = context.state.metadata.get("heard", 0) + 1
        return context.with_state(context.state.with_metadata({"heard": heard}))

    agent, _ = agent_of(["no", "no", "no"], hooks=[make_hook("after_inference", count)])
    state = await agent.run("Go")

    assert state.metadata["heard"] == 3


@pytest.mark.parametrize(
    ("reply", "messages"),
    [
        (calling("add", {"a": 1, "b": 2}), 2),
        (answering("Three."), 1),
        ("no decision", 0),
    ],
)
async def test_a_stop_after_the_inference_keeps_what_was_said_and_used(
    reply: str, messages: int
) -> None:
    def stop(context: HookContext) -> None:
        raise AgentStop(StopReason.GUARD, "enough")

    agent, model = agent_of([reply], hooks=[make_hook("after_inference", stop)])
    state = await agent.run("Go")
    step = state.steps[0].step

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.GUARD
    assert len(model.requests) == 1
    assert (state.usage.total_tokens, state.cost) == (15, 0.5)
    assert len(step.messages) == messages
    assert [e.outcome for e in step.tool_executions] == [ToolOutcome.NOT_RUN] * (messages == 2)
    assert is_valid(state)


async def test_a_hook_that_raises_after_the_inference_fails_the_run_with_what_was_used() -> None:
    def fail(context: HookContext) -> None:
        raise ValueError("hook bug")

    agent, _ = agent_of([answering("Three.")], hooks=[make_hook("after_inference", fail)])
    state = await agent.run("Go")

    assert state.status is AgentStatus.FAILED
    assert state.usage.total_tokens == 15
    assert "hook bug" in state.steps[0].step.errors[0].message


async def test_a_stop_before_a_second_turn_keeps_what_the_first_used() -> None:
    def stop_second(context: HookContext) -> None:
        if context.request is not None and context.request.instruction is not None:
            raise AgentStop(StopReason.GUARD, "no second try")

    agent, model = agent_of(["no"], hooks=[make_hook("before_inference", stop_second)])
    state = await agent.run("Go")

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.GUARD
    assert len(model.requests) == 1
    assert state.usage.total_tokens == 15
    assert state.steps[0].step.messages == ()


async def test_a_stop_after_the_plain_answer_keeps_the_answer() -> None:
    def stop_second(context: HookContext) -> None:
        if context.response is not None and context.response.text == "It is three.":
            raise AgentStop(StopReason.GUARD, "enough")

    agent, _ = agent_of(
        ['{"type": "final_answer", "thought": "Easy."}', "It is three."],
        final_via_inference=True,
        hooks=[make_hook("after_inference", stop_second)],
    )
    state = await agent.run("Go")

    assert state.final_response == "It is three."
    assert state.usage.total_tokens == 30


class HangingModel:
    """Answers the turns it was given, and then never again; cancels the run meanwhile."""

    name = "hanging"

    def __init__(self, turns: Sequence[str], cancellation: Cancellation) -> None:
        self._turns = list(turns)
        self._cancellation = cancellation

    async def respond(self, request: ModelRequest) -> ModelResponse:
        if self._turns:
            return ModelResponse(text=self._turns.pop(0), usage=Usage(input_tokens=10))
        self._cancellation.request("enough")
        await asyncio.Event().wait()
        raise AssertionError("nothing sets that event")


@pytest.mark.parametrize("turns", [[], ["no"], [calling("add", {"a": 1, "b": 2}), "no"]])
async def test_a_cancellation_ends_the_turn_in_flight_and_keeps_what_was_used(
    turns: list[str],
) -> None:
    cancellation = Cancellation()
    agent = Agent(driver=ReActDriver(HangingModel(turns, cancellation)), tools=[add])
    async with asyncio.timeout(90):
        state = await agent.run("Go", cancellation=cancellation)

    assert state.status is AgentStatus.CANCELLED
    assert "the call to hanging was running and was cancelled" in state.explain()
    assert state.usage == Usage(input_tokens=10 * len(turns))
    assert is_valid(state)


async def test_b235_a_cancellation_of_the_plain_answer_leaves_none() -> None:
    cancellation = Cancellation()
    model = HangingModel([answering("ignored")], cancellation)
    agent = Agent(driver=ReActDriver(model, final_via_inference=True))
    async with asyncio.timeout(90):
        state = await agent.run("Go", cancellation=cancellation)

    assert state.status is AgentStatus.CANCELLED
    assert state.final_response is None
    assert [m.text for m in state.messages] == ["Go"]
    assert state.usage == Usage(input_tokens=10)


async def test_a_cancellation_reaches_the_tool() -> None:
    cancellation = Cancellation()

    async def hang() -> None:
        cancellation.request("enough")
        await asyncio.Event().wait()

    agent, _ = agent_of([calling("hang")], MockTool("hang", hang))
    async with asyncio.timeout(90):
        state = await agent.run("Go", cancellation=cancellation)

    assert state.status is AgentStatus.CANCELLED
    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.CANCELLED
    assert is_valid(state)


# The last step at a limit


async def test_the_last_step_at_a_limit_asks_for_the_answer_and_refuses_calls() -> None:
    once = calling("add", {"a": 1, "b": 2})
    agent, model = agent_of([once, once], max_steps=1, at_limit="wrap_up")
    state = await agent.run("Go")
    form, told = model.requests[1].format, model.requests[1].instruction

    assert form is not None
    assert form.schema is not None
    assert form.schema["properties"]["type"]["enum"] == ["final_answer"]
    assert "answer" in form.schema["required"]
    assert told is not None
    assert "no tool can be called any more" in told.text
    assert "final answer" in told.text
    assert model.requests[0].context == model.requests[1].context
    assert state.steps[1].step.tool_executions[0].outcome is ToolOutcome.BLOCKED
    assert not state.had_errors
    assert is_valid(state)


@pytest.mark.parametrize("final_via_inference", [False, True])
async def test_the_last_step_at_a_limit_answers(final_via_inference: bool) -> None:
    agent, model = agent_of(
        [calling("add", {"a": 1, "b": 2}), answering("Half done."), "Half done."],
        max_steps=1,
        at_limit="wrap_up",
        final_via_inference=final_via_inference,
    )
    state = await agent.run("Go")
    told = model.requests[-1].instruction

    assert state.final_response == "Half done."
    assert told is not None
    assert "say what is left undone" in told.text
    assert not any(message.is_system() for message in state.messages)


# Put together


def test_it_is_a_driver_that_an_agent_binds() -> None:
    assert isinstance(ReActDriver(ScriptedModel([])), BindableDriver)


async def test_the_agents_parts_reach_the_driver() -> None:
    seen: list[str] = []
    model = ScriptedModel([calling("add", {"a": 1, "b": 2}), answering("Three.")])
    agent = (
        AgentBuilder.base()
        .with_driver(
            ReActDriver(
                model,
                context=CachedContext(messages=(Message.system("Own."),)),
                settings=ModelSettings(temperature=0.1),
                hooks=HookStack([make_hook("after_inference", lambda _: seen.append("own"))]),
            )
        )
        .with_tools(add)
        .with_system_prompt("Agent's.")
        .with_model_settings(ModelSettings(temperature=0.9, seed=7, tool_choice="auto"))
        .add_hook("after_inference", lambda _: seen.append("agent's"))
        .build()
    )
    state = await agent.run("Go")
    request = model.requests[0]

    assert state.final_response == "Three."
    assert [m.text for m in request.context.messages][:2] == ["Agent's.", "Own."]
    assert (request.settings.temperature, request.settings.seed) == (0.1, 7)
    assert request.settings.tool_choice is None
    assert seen == ["agent's", "own"] * 2


@pytest.mark.parametrize(
    "settings",
    [
        ModelSettings(tool_choice="required"),
        ModelSettings(tool_choice="none"),
        ModelSettings(tool_choice="add"),
        ModelSettings(parallel_tool_calls=True),
    ],
)
def test_settings_of_native_tool_calling_are_refused(settings: ModelSettings) -> None:
    model = ScriptedModel([])
    with pytest.raises(ConfigurationError, match="ReActDriver can't honour"):
        ReActDriver(model, settings=settings)
    with pytest.raises(ConfigurationError, match="ReActDriver can't honour"):
        Agent(driver=ReActDriver(model), tools=[add], settings=settings)


async def test_settings_that_one_call_per_step_honours_are_not_sent() -> None:
    model = ScriptedModel([answering("Hi.")])
    settings = ModelSettings(tool_choice="auto", parallel_tool_calls=False)
    await Agent(driver=ReActDriver(model, settings=settings)).run("Go")

    assert model.requests[0].settings == ModelSettings()


async def test_an_agent_that_is_built_again_binds_the_driver_only_once() -> None:
    agent, model = agent_of([answering("Hi.")], system_prompt="Once.")
    await Agent.from_plan(agent.plan).run("Go")

    assert [m.text for m in model.requests[0].context.messages].count("Once.") == 1


async def test_a_driver_with_an_executor_of_its_own_keeps_it() -> None:
    model = ScriptedModel([calling("add", {"a": 1, "b": 2}), answering("Three.")])
    state = await Agent(driver=ReActDriver(model, ToolExecutor(Tools([add])))).run("Go")

    assert state.steps[0].step.tool_executions[0].value == 3


@pytest.mark.parametrize("retries", [-1, 1.5, None])
def test_a_wrong_number_of_retries_is_refused(retries: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_extraction_retries must be 0 or more"):
        ReActDriver(ScriptedModel([]), max_extraction_retries=retries)


@pytest.mark.parametrize("model", ["gpt-9", ScriptedModel, None])
def test_something_else_than_a_model_is_refused(model: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a model"):
        ReActDriver(model)


# Whatever a model says

words = st.sampled_from(["call_tool", "final_answer", "add", "fly", "hang", "", "Hm."])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=3), inner),
    max_leaves=5,
)
decisions = st.fixed_dictionaries(
    {},
    optional={
        "thought": words | anything,
        "type": st.sampled_from(["call_tool", "final_answer"]) | anything,
        "tool": words | anything,
        "args": st.dictionaries(st.sampled_from("abc"), st.integers()) | anything,
        "answer": words | anything,
    },
).map(json.dumps)
replies = decisions | st.text() | anything.map(json.dumps) | decisions.map(lambda d: f"x {d} y")


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    turns=st.lists(replies, max_size=8),
    via_inference=st.booleans(),
    policy=st.sampled_from([ErrorPolicy.stop_on_any_error(), ErrorPolicy.retry_all(3)]),
    at_limit=st.sampled_from(["stop", "wrap_up", "pause"]),
    heard=st.booleans(),
)
async def test_whatever_a_model_says_the_run_ends_as_data_with_a_valid_history(
    turns: list[str], via_inference: bool, policy: ErrorPolicy, at_limit: str, heard: bool
) -> None:
    script = iter(turns)
    model = ScriptedModel(lambda _: next(script, answering("The end.")))
    agent = Agent(
        driver=ReActDriver(model, final_via_inference=via_inference),
        tools=[add, MockTool.raising("hang", ValueError("no"))],
        error_policy=policy,
        at_limit=at_limit,
        max_steps=4,
        clock=FakeClock(),
    )
    recorder = EventRecorder()
    if heard:
        agent.wiretap(recorder)
    state = await agent.run("Go")

    assert state.status is not AgentStatus.IN_PROGRESS
    assert state.stop is not None
    assert is_valid(state)
    assert state.usage == Usage(
        input_tokens=10 * len(model.requests), output_tokens=5 * len(model.requests)
    )
    sent = [message for request in model.requests for message in request.messages]
    assert all(message.role is not Role.TOOL and not message.tool_calls for message in sent)
    told = "".join(event.content for event in recorder.of(StreamEventReceived))
    answers = "".join(recorded.step.text for recorded in state.steps)
    assert told == (answers if heard else "")


@pytest.mark.parametrize(
    ("answer", "text"), [('{"number": "A1"}', '{"number":"A1"}'), ("3", "3"), ("0", "0")]
)
async def test_an_answer_that_is_not_quoted_is_taken_as_its_text(answer: str, text: str) -> None:
    model = ScriptedModel([f'{{"type": "final_answer", "answer": {answer}}}'])

    state = await Agent(driver=ReActDriver(model)).run("Go.")

    assert state.final_response == text
