"""A model that makes the same external call again and again is told so, and then stopped."""

import asyncio
from itertools import count
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentState,
    AgentStatus,
    ConfigurationError,
    ErrorPolicy,
    InputRequired,
    Message,
    ModelResponse,
    StopReason,
    ToolCall,
    ToolContext,
    make_hook,
    tool,
)
from stepwell.broadcasting import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.criteria import RepeatedCallCheck
from stepwell.drivers import ReActDriver
from stepwell.events import ToolCallBlocked, ToolCallCompleted
from stepwell.serialization import AgentStateSerializer
from stepwell.state import RepeatedCalls
from stepwell.testing import MockTool, ScriptedModel, call

BOOK = call("book", seat=7)
NUMBERS = count()


def endless(_: Any) -> ModelResponse:
    return BOOK


def notes(state: AgentState) -> list[bool]:
    executions = [e for taken in state.steps for e in taken.step.tool_executions]
    return ["[Note: " in execution.text for execution in executions]


def booking(answer: Any = "booked", **options: Any) -> MockTool:
    return MockTool("book", answer if callable(answer) else lambda seat: answer, **options)


async def test_repeated_calls_get_a_note_and_then_end_the_run() -> None:
    model = ScriptedModel(endless)
    state = await Agent(model, tools=[booking()]).run("Book seat 7")

    assert (state.status, state.step_count) == (AgentStatus.STOPPED, 8)
    assert state.stop is not None
    assert (state.stop.stop_reason, state.stop.resolved_by) == (
        StopReason.GUARD,
        "RepeatedCallCheck",
    )
    assert notes(state) == [False, False, True, True, True, True, True, True]
    told = model.requests[3].messages[-1].tool_result
    assert told is not None
    assert told.content.startswith("booked\n\n[Note: this was call 3 in a row of book")
    assert "book called 8 times in a row, same arguments and result" in state.explain()
    assert "repeated_calls=None" in state.explain()


async def test_events_and_envelopes_have_the_note_that_the_model_reads() -> None:
    agent = Agent(ScriptedModel([BOOK, BOOK, BOOK, "Done."]), tools=[booking()])
    completed: list[ToolCallCompleted] = []
    agent.on_event(ToolCallCompleted, completed.append)
    screen = RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(screen, "s1", "e1")
    agent.wiretap(adapter.wiretap())
    state = await agent.run("Go")
    await adapter.flush()

    result = state.steps[2].step.tool_executions[0].text
    assert [event.note for event in completed[:2]] == ["", ""]
    assert result == f"booked\n\n{completed[2].note}"
    told = [it["payload"] for it in screen.envelopes if it["type"] == "agent.tool.completed"]
    assert [payload["result_summary"] for payload in told] == ["booked", "booked", result]


async def test_the_same_call_several_times_in_one_response_is_noted_in_order() -> None:
    """The second of three waits for a first that takes longer; its event has the right note."""
    third_done, told = asyncio.Event(), []

    @tool(effect="external")
    async def book(seat: int) -> str:
        """Book a seat."""
        runs.append(seat)
        if len(runs) == 1:
            await third_done.wait()
        if len(runs) == 3:
            third_done.set()
        return "booked"

    runs: list[int] = []
    calls = tuple(ToolCall(id=f"c{n}", name="book", arguments={"seat": 7}) for n in range(3))
    agent = Agent(ScriptedModel([ModelResponse(tool_calls=calls), "Done."]), tools=[book])
    agent.on_event(ToolCallCompleted, lambda event: told.append((event.call_id, bool(event.note))))
    state = await agent.run("Go")

    assert told == [("c0", False), ("c1", False), ("c2", True)]
    assert notes(state) == [False, False, True]


async def test_a_blocked_call_that_is_repeated_has_the_note_in_its_event() -> None:
    agent = Agent(
        ScriptedModel([BOOK, BOOK, BOOK, "Done."]),
        tools=[booking()],
        hooks=[make_hook("before_tool", lambda context: context.block("not today"))],
    )
    reasons: list[str] = []
    agent.on_event(ToolCallBlocked, lambda event: reasons.append(event.reason))
    state = await agent.run("Go")

    assert reasons[:2] == ["not today"] * 2
    assert state.steps[2].step.tool_executions[0].text.endswith(f"Blocked: {reasons[2]}")
    assert "[Note: " in reasons[2]


@pytest.mark.parametrize("door", ["constructor", "builder"])
async def test_the_numbers_can_be_changed(door: str) -> None:
    numbers = RepeatedCalls(note_at=2, stop_at=4)
    if door == "constructor":
        agent = Agent(ScriptedModel(endless), tools=[booking()], repeated_calls=numbers)
    else:
        builder = AgentBuilder.base().with_model(ScriptedModel(endless)).with_tools(booking())
        agent = builder.with_repeated_calls(numbers).build()
    state = await agent.run("Go")

    assert notes(state) == [False, True, True, True]


@pytest.mark.parametrize(
    ("numbers", "noted"),
    [(None, 0), (RepeatedCalls(note_at=None, stop_at=None), 0), (RepeatedCalls(stop_at=None), 18)],
)
async def test_it_can_be_switched_off(numbers: RepeatedCalls | None, noted: int) -> None:
    agent = Agent(ScriptedModel(endless), tools=[booking()], repeated_calls=numbers)
    state = await agent.run("Go")

    assert state.stop is not None
    assert (state.stop.stop_reason, sum(notes(state))) == (StopReason.STEPS_LIMIT, noted)


async def test_a_builder_without_base_criteria_has_no_such_check() -> None:
    agent = AgentBuilder.new().with_model(ScriptedModel(["Hi."])).build()
    assert agent.plan.repeated_calls is None


@pytest.mark.parametrize(
    "tools",
    [
        [booking(effect="pure")],
        [booking(effect="idempotent")],
        [booking(lambda seat: next(NUMBERS))],
    ],
    ids=["pure", "idempotent", "other results"],
)
async def test_reading_tools_and_other_results_are_no_repetition(tools: list[MockTool]) -> None:
    state = await Agent(ScriptedModel(endless), tools=tools).run("Go")

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.STEPS_LIMIT
    assert not any(notes(state))


async def test_another_call_in_between_begins_the_count_anew() -> None:
    turns = [BOOK, BOOK, BOOK, call("look"), BOOK, BOOK, call("book", seat=8), BOOK, "Done."]
    tools = [booking(), MockTool.returning("look", "seen")]
    state = await Agent(ScriptedModel(turns), tools=tools).run("Go")

    assert state.status is AgentStatus.COMPLETED
    assert notes(state) == [False, False, True, *[False] * 5]


async def test_parallel_calls_of_one_response_count() -> None:
    turn = ModelResponse(
        tool_calls=tuple(ToolCall(id=f"c{n}", name="book", arguments={"seat": 7}) for n in range(4))
    )
    model = ScriptedModel([turn, turn, "never"])
    state = await Agent(model, tools=[booking()]).run("Go")

    assert notes(state) == [False, False, True, True, True, True, True, True]
    assert (state.status, state.step_count) == (AgentStatus.STOPPED, 2)


async def test_failed_calls_are_the_error_policys_matter() -> None:
    def book(seat: int) -> str:
        """Book."""
        raise ValueError("taken")

    agent = Agent(
        ScriptedModel(endless), tools=[book], error_policy=ErrorPolicy.ignore_tool_errors()
    )
    state = await agent.run("Go")

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.STEPS_LIMIT
    assert not any(notes(state))


async def test_a_call_that_waited_for_a_person_begins_the_count_anew() -> None:
    @tool
    def book(seat: int, context: ToolContext) -> Any:
        """Book."""
        asks = context.state.step_number == 3
        return InputRequired(prompt="Sure?", resumes=True) if asks else "booked"

    model = ScriptedModel([BOOK] * 5 + ["Done."])
    agent = Agent(model, tools=[book])
    paused = await agent.run("Go")
    state = await agent.run(paused.with_answer(paused.pending[0], "yes"))

    assert state.final_response == "Done."
    assert not any(notes(state))


async def test_a_message_of_the_user_begins_the_count_anew() -> None:
    def steer(context: Any) -> Any:
        if context.state.step_number != 3:
            return None
        return context.with_state(context.state.with_message(Message.user("And seat 7 again.")))

    model = ScriptedModel([BOOK] * 4 + ["Done."])
    agent = Agent(model, tools=[booking()], hooks=[make_hook("before_step", steer)])
    state = await agent.run("Go")

    assert not any(notes(state))


async def test_the_count_survives_storing_the_state() -> None:
    agent = Agent(ScriptedModel(endless), tools=[booking()])
    serializer = AgentStateSerializer()
    state = agent.new_state("Go")
    while agent.has_next_step(state):
        state = serializer.deserialize(serializer.serialize(await agent.next_step(state)))

    assert state.step_count == 8
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.GUARD


async def test_react_is_told_as_well() -> None:
    decision = '{"thought": "", "type": "call_tool", "tool": "book", "args": {"seat": 7}}'
    model = ScriptedModel(lambda _: decision)
    state = await Agent(driver=ReActDriver(model), tools=[booking()]).run("Go")

    assert state.step_count == 8
    assert "[Note: this was call 3 in a row" in model.requests[3].messages[-1].text


@pytest.mark.parametrize("number", [1, 0, -3, True, 2.5, "8"])
def test_odd_numbers_are_refused(number: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be 2 or more, or None"):
        RepeatedCalls(stop_at=number)
    with pytest.raises(ConfigurationError, match="must be 2 or more, or None"):
        RepeatedCallCheck(number)


def test_something_else_than_repeated_calls_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="repeated_calls wants RepeatedCalls"):
        Agent(ScriptedModel([]), repeated_calls=5)  # type: ignore[arg-type]
