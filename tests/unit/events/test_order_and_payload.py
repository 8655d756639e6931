"""The exact order of a run's events and what each of them tells."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    ContinuationDecision,
    FinishReason,
    FunctionTool,
    HookContext,
    InputRequired,
    ModelError,
    StopReason,
    ToolContext,
    Usage,
    make_hook,
)
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentFailed,
    AgentFinished,
    AgentStateUpdated,
    AgentStepCompleted,
    AgentStepStarted,
    ContinuationEvaluated,
    EventBus,
    EventSource,
    InferenceRequestStarted,
    InferenceResponseReceived,
    StreamEventReceived,
    SubagentCompleted,
    SubagentSpawning,
    TokenUsageReported,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.testing import EventRecorder, FakeClock, MockTool, ScriptedModel, SequentialIds, call
from tests.answers import answer_call

USED = Usage(input_tokens=10, output_tokens=5)


async def recorded(agent: Agent, task: str | AgentState = "Go") -> tuple[EventRecorder, AgentState]:
    recorder = EventRecorder()
    agent.wiretap(recorder)
    return recorder, await agent.run(task)


def adding_agent(**options: Any) -> Agent:
    model = ScriptedModel([call("add", id="c1", a=1, b=2), "Three it is."])
    options.setdefault("tools", [MockTool("add", lambda a, b: a + b)])
    return Agent(model, new_id=SequentialIds(), **options)


async def test_b128_one_tool_step_then_the_final_step() -> None:
    recorder, _ = await recorded(adding_agent())

    assert [name for name in recorder.names if name != "StreamEventReceived"] == [
        "AgentExecutionStarted",
        "AgentStepStarted",
        "InferenceRequestStarted",
        "InferenceResponseReceived",
        "ToolCallStarted",
        "ToolCallCompleted",
        "AgentStepCompleted",
        "TokenUsageReported",
        "ContinuationEvaluated",
        "AgentStateUpdated",
        "AgentStepStarted",
        "InferenceRequestStarted",
        "InferenceResponseReceived",
        "AgentStepCompleted",
        "TokenUsageReported",
        "ContinuationEvaluated",
        "AgentStateUpdated",
        "AgentFinished",
    ]


async def test_b128_text_arrives_between_the_request_and_the_response() -> None:
    recorder, _ = await recorded(Agent(ScriptedModel(["Three it is."])))
    names = recorder.names
    chunks = recorder.of(StreamEventReceived)

    first, last = names.index("StreamEventReceived"), names.index("InferenceResponseReceived")
    assert names.index("InferenceRequestStarted") < first < last
    assert [chunk.content for chunk in chunks] == ["Three", " it", " is.", ""]
    assert [chunk.chunk_index for chunk in chunks] == [0, 1, 2, 3]
    assert [chunk.is_complete for chunk in chunks] == [False, False, False, True]
    assert {chunk.step_number for chunk in chunks} == {1}


async def test_every_event_carries_the_ids_of_its_run() -> None:
    agent = adding_agent()
    task = AgentState.empty(agent_id="child", parent_agent_id="parent").with_user_message("Go")
    recorder, state = await recorded(agent, task)
    assert state.execution is not None

    assert {event.agent_id for event in recorder.events} == {"child"}
    assert {event.parent_agent_id for event in recorder.events} == {"parent"}
    assert {event.execution_id for event in recorder.events} == {state.execution.id}


async def test_times_of_events_come_from_the_clock_in_order() -> None:
    clock = FakeClock()
    start = clock.now()

    async def slow(a: int, b: int) -> int:
        clock.advance(2)
        return a + b

    tool = MockTool("add", slow)
    recorder, _ = await recorded(adding_agent(tools=[tool], clock=clock))

    assert recorder.events[0].at == start
    assert recorder.events[-1].at == start + timedelta(seconds=2)
    assert [e.at for e in recorder.events] == sorted(e.at for e in recorder.events)


async def test_b129_b139_step_numbers_and_tool_names() -> None:
    recorder, _ = await recorded(adding_agent())
    [execution] = recorder.of(AgentExecutionStarted)
    started = recorder.of(AgentStepStarted)

    assert [event.step_number for event in started] == [1, 2]
    assert [event.step_number for event in recorder.of(AgentStepCompleted)] == [1, 2]
    assert [event.message_count for event in started] == [1, 3]
    assert [event.available_tools for event in started] == [("add",), ("add",)]
    assert (execution.available_tools, execution.message_count) == (("add",), 1)
    assert execution.resumed is False


async def test_b129_numbers_start_over_with_each_execution() -> None:
    agent = Agent(ScriptedModel(["One.", "Two."]))
    recorder, state = await recorded(agent)
    await agent.run(state.with_user_message("Again"))

    assert [event.step_number for event in recorder.of(AgentStepStarted)] == [1, 1]
    assert len({event.execution_id for event in recorder.events}) == 2


async def test_b130_tool_events_tell_tool_arguments_times_and_result() -> None:
    clock = FakeClock()

    async def add(a: int, b: int) -> int:
        clock.advance(2)
        return a + b

    recorder, _ = await recorded(adding_agent(tools=[MockTool("add", add)], clock=clock))
    [started] = recorder.of(ToolCallStarted)
    [completed] = recorder.of(ToolCallCompleted)

    assert (started.tool, started.args, started.call_id) == ("add", {"a": 1, "b": 2}, "c1")
    assert started.step_number == 1
    assert (completed.tool, completed.call_id) == ("add", "c1")
    assert (completed.success, completed.error, completed.value) == (True, None, 3)
    assert completed.started_at == started.at
    assert completed.completed_at - completed.started_at == timedelta(seconds=2)
    assert completed.duration_ms == 2000


async def test_b130_a_failed_call_tells_its_error() -> None:
    tool = MockTool.raising("add", ValueError("no"))
    recorder, _ = await recorded(adding_agent(tools=[tool]))
    [completed] = recorder.of(ToolCallCompleted)

    assert completed.success is False
    assert completed.error is not None
    assert "ValueError: no" in completed.error


async def test_step_completed_tells_what_the_step_was() -> None:
    clock = FakeClock()

    async def add(a: int, b: int) -> int:
        clock.advance(1.5)
        return a + b

    recorder, _ = await recorded(adding_agent(tools=[MockTool("add", add)], clock=clock))
    first, last = recorder.of(AgentStepCompleted)

    assert (first.has_tool_calls, last.has_tool_calls) == (True, False)
    assert (first.finish_reason, last.finish_reason) == (
        FinishReason.TOOL_CALLS,
        FinishReason.STOP,
    )
    assert (first.error_count, first.errors) == (0, ())
    assert first.usage == USED
    assert (first.duration_ms, last.duration_ms) == (1500, 0)


async def test_step_completed_lists_errors() -> None:
    tool = MockTool.raising("add", ValueError("no"))
    recorder, _ = await recorded(adding_agent(tools=[tool]))
    [completed] = recorder.of(AgentStepCompleted)

    assert (completed.error_count, completed.errors) == (1, ("ValueError: no",))


async def test_b132_token_usage_tells_step_and_total() -> None:
    recorder, _ = await recorded(adding_agent())
    reports = recorder.of(TokenUsageReported)

    assert [report.usage for report in reports] == [USED, USED]
    assert [report.total for report in reports] == [USED, USED + USED]


async def test_b132_no_token_usage_event_when_nothing_was_used() -> None:
    recorder, _ = await recorded(Agent(ScriptedModel(["Hi."], usage=Usage())))

    assert recorder.of(TokenUsageReported) == []
    assert recorder.names[-1] == "AgentFinished"


async def test_b133_a_failed_run_tells_the_original_exception_then_ends() -> None:
    original = ModelError("the model is down")
    recorder, _ = await recorded(Agent(ScriptedModel([original])))
    [failed] = recorder.of(AgentFailed)

    assert failed.exception_type == "ModelError"
    assert "the model is down" in failed.error
    assert failed.exception is original
    assert (failed.status, failed.steps_completed) == (AgentStatus.FAILED, 1)
    assert recorder.names[-2:] == ["AgentFailed", "AgentFinished"]
    assert recorder.of(AgentFinished)[0].status is AgentStatus.FAILED


async def test_b133_a_tool_that_raises_is_told_with_its_type_and_text() -> None:
    tool = MockTool.raising("add", ValueError("no such number"))
    recorder, _ = await recorded(adding_agent(tools=[tool]))
    [failed] = recorder.of(AgentFailed)

    assert failed.exception_type == "ValueError"
    assert "no such number" in failed.error


@pytest.mark.parametrize(
    "trigger",
    [
        "before_execution",
        "before_step",
        "before_inference",
        "after_inference",
        "before_tool",
        "after_tool",
        "after_step",
        "on_stop",
        "after_execution",
    ],
)
async def test_b133_a_hook_that_raises_is_told_with_the_original_type_and_text(
    trigger: str,
) -> None:
    def broken(context: HookContext) -> None:
        raise ZeroDivisionError("hook broke")

    recorder, state = await recorded(adding_agent(hooks=[make_hook(trigger, broken)]))
    failures = recorder.of(AgentFailed)

    assert state.status is AgentStatus.FAILED
    assert [failed.exception_type for failed in failures] == ["ZeroDivisionError"]
    assert "hook broke" in failures[0].error


class BrokenCriterion:
    def evaluate(self, state: AgentState) -> ContinuationDecision:
        raise ZeroDivisionError("criterion broke")


async def test_b133_a_criterion_that_raises_is_told_with_the_original_type_and_text() -> None:
    recorder, _ = await recorded(adding_agent(criteria=[BrokenCriterion()]))
    [failed] = recorder.of(AgentFailed)

    assert failed.exception_type == "ZeroDivisionError"
    assert "criterion broke" in failed.error


ENDINGS: list[tuple[str, dict[str, Any], list[Any], AgentStatus]] = [
    ("completed", {}, ["Done."], AgentStatus.COMPLETED),
    ("steps limit", {"max_steps": 1}, [call("add", a=1, b=2)], AgentStatus.STOPPED),
    ("no step at all", {"max_steps": 0}, [], AgentStatus.STOPPED),
    ("failed", {}, [ModelError("down")], AgentStatus.FAILED),
    ("paused", {"max_steps": 1, "at_limit": "pause"}, [call("add", a=1, b=2)], AgentStatus.PAUSED),
]


@pytest.mark.parametrize(
    ("options", "turns", "status"),
    [ending[1:] for ending in ENDINGS],
    ids=[ending[0] for ending in ENDINGS],
)
async def test_b134_exactly_one_terminal_event_with_the_final_status(
    options: dict[str, Any], turns: list[Any], status: AgentStatus
) -> None:
    agent = Agent(ScriptedModel(turns), tools=[MockTool("add", lambda a, b: a + b)], **options)
    recorder, state = await recorded(agent)
    [finished] = recorder.of(AgentFinished)
    assert state.stop is not None

    assert recorder.names[-1] == "AgentFinished"
    assert (state.status, finished.status) == (status, status)
    assert finished.stop_reason is state.stop.stop_reason
    assert finished.outcome == state.stop
    assert finished.total_steps == state.step_count
    assert finished.total_usage == state.usage
    assert recorder.of(AgentStateUpdated)[-1].status is status


async def test_the_terminal_event_tells_how_long_the_run_took() -> None:
    clock = FakeClock()

    async def slow(a: int, b: int) -> int:
        clock.advance(0.05)
        return a + b

    recorder, _ = await recorded(adding_agent(tools=[MockTool("add", slow)], clock=clock))

    assert recorder.of(AgentFinished)[0].duration_ms == pytest.approx(50)


async def test_one_continuation_event_per_step_and_the_last_one_stops() -> None:
    recorder, state = await recorded(adding_agent())
    decisions = recorder.of(ContinuationEvaluated)

    assert [event.step_number for event in decisions] == [1, 2]
    assert [event.outcome.should_continue for event in decisions] == [True, False]
    assert decisions[1].outcome.stop_reason is StopReason.COMPLETED
    assert [event.outcome for event in decisions] == [step.outcome for step in state.steps]
    assert str(decisions[0]).endswith("step 1: CONTINUE (by ToolCallPresenceCheck)")
    assert "step 2: STOP (completed by" in str(decisions[1])


async def test_b135_on_another_bus_only_that_one_is_told_also_by_the_executor() -> None:
    old, new = EventRecorder(), EventRecorder()

    async def work(context: ToolContext, a: int, b: int) -> int:
        context.progress("half")
        return a + b

    agent = adding_agent(tools=[FunctionTool(work, name="add")])
    agent.wiretap(old)
    bus = EventBus()
    bus.wiretap(new)
    moved = agent.with_events(bus)
    await moved.run("Go")

    assert old.events == []
    assert {"ToolCallStarted", "ToolCallProgressed", "ToolCallCompleted"} <= set(new.names)
    assert moved.events is bus
    assert agent.events is not bus


async def test_b054_inference_hooks_run_around_the_events_and_events_show_their_values() -> None:
    order: list[str] = []

    def shorten(context: HookContext) -> HookContext:
        order.append("before hook")
        assert context.request is not None
        return context.with_request(
            replace(context.request, messages=context.request.messages[-1:], tools=())
        )

    def polish(context: HookContext) -> HookContext:
        order.append("after hook")
        assert context.response is not None
        changed = Usage(input_tokens=1, output_tokens=1)
        return context.with_response(replace(context.response, text="Polished.", usage=changed))

    model = ScriptedModel(["Rough."])
    agent = Agent(
        model,
        tools=[MockTool.returning("add", 3)],
        hooks=[make_hook("before_inference", shorten), make_hook("after_inference", polish)],
    )
    requests: list[InferenceRequestStarted] = []
    responses: list[InferenceResponseReceived] = []

    def on_request(event: InferenceRequestStarted) -> None:
        order.append("request event")
        requests.append(event)

    def on_response(event: InferenceResponseReceived) -> None:
        order.append("response event")
        responses.append(event)

    agent.on_event(InferenceRequestStarted, on_request)
    agent.on_event(InferenceResponseReceived, on_response)
    state = await agent.run(agent.new_state("One").with_user_message("Two"))

    assert order == ["before hook", "request event", "after hook", "response event"]
    assert [m.text for m in model.requests[0].messages] == ["Two"]
    assert (requests[0].message_count, requests[0].tool_count) == (1, 0)
    assert requests[0].model == "scripted"
    assert responses[0].text == "Polished."
    assert responses[0].usage.total_tokens == 2
    assert requests[0].inference_id == responses[0].inference_id
    assert state.final_response == "Polished."
    assert state.steps[0].step.usage.total_tokens == 2


async def test_b054_each_model_turn_has_an_inference_id_of_its_own() -> None:
    recorder, _ = await recorded(adding_agent())
    requested = [event.inference_id for event in recorder.of(InferenceRequestStarted)]
    received = [event.inference_id for event in recorder.of(InferenceResponseReceived)]

    assert requested == received
    assert len(set(requested)) == 2


async def test_a_response_event_tells_calls_and_finish_reason() -> None:
    recorder, _ = await recorded(adding_agent())
    first, last = recorder.of(InferenceResponseReceived)

    assert (first.tool_call_count, first.finish_reason, first.text) == (
        1,
        FinishReason.TOOL_CALLS,
        "",
    )
    assert (last.tool_call_count, last.finish_reason) == (0, FinishReason.STOP)
    assert (last.text, last.model, last.usage) == ("Three it is.", "scripted", USED)


SOURCE = EventSource(agent_id="child", parent_agent_id="parent", execution_id="run")


def test_b137_subagent_events_have_their_own_id_and_their_parents() -> None:
    at = FakeClock().now()
    about = {"name": "helper", "depth": 0, "max_depth": 3, "call_id": "c", "child_agent_id": "h"}
    spawning = SubagentSpawning(SOURCE, at, prompt="Help", **about)
    completed = SubagentCompleted(
        SOURCE, at, status=AgentStatus.COMPLETED, steps=2, usage=USED, **about
    )

    for event in (spawning, completed):
        assert isinstance(event, AgentEvent)
        assert (event.agent_id, event.parent_agent_id) == ("child", "parent")
        assert (event.execution_id, event.at) == ("run", at)
    assert (spawning.name, spawning.depth, spawning.max_depth) == ("helper", 0, 3)
    assert (completed.steps, completed.usage) == (2, USED)


async def test_events_are_frozen() -> None:
    recorder, _ = await recorded(Agent(ScriptedModel(["Hi."])))

    for event in recorder.events:
        with pytest.raises(AttributeError):
            event.at = FakeClock().now()  # type: ignore[misc]


async def test_a_resumed_execution_says_so() -> None:
    agent = Agent(
        ScriptedModel([call("ask", id="c1"), "ok"]),
        tools=[MockTool.returning("ask", InputRequired(prompt="?"))],
    )
    recorder, paused = await recorded(agent)
    await agent.run(answer_call(paused, "c1", "yes"))

    assert [event.resumed for event in recorder.of(AgentExecutionStarted)] == [False, True]
    assert [event.step_number for event in recorder.of(AgentStepStarted)] == [1, 2]
    assert len({event.execution_id for event in recorder.events}) == 1
