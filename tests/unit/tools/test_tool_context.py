"""``ToolContext`` is filled in wherever it stands, and hidden from the model."""

from collections.abc import Callable
from typing import Annotated, Any, Optional

import pytest

from stepwell import Agent, AgentState, FunctionTool, ToolContext
from stepwell.events import ToolCallCompleted, ToolCallProgressed, ToolCallStarted
from stepwell.testing import EventRecorder, ScriptedModel, SequentialIds, call


def first(context: ToolContext, x: int) -> str:
    return f"{context.call_id}:{x}"


def last(x: int, context: ToolContext) -> str:
    return f"{context.call_id}:{x}"


def keyword_only(x: int, *, context: ToolContext) -> str:
    return f"{context.call_id}:{x}"


def optional(x: int, context: ToolContext | None = None) -> str:
    return f"{context and context.call_id}:{x}"


def old_optional(x: int, context: Optional[ToolContext] = None) -> str:  # noqa: UP045
    return f"{context and context.call_id}:{x}"


def annotated(x: int, context: Annotated[ToolContext, "the context"]) -> str:
    return f"{context.call_id}:{x}"


def quoted(x: int, context: "ToolContext") -> str:
    return f"{context.call_id}:{x}"


async def in_async(context: ToolContext, x: int) -> str:
    return f"{context.call_id}:{x}"


PLACES = [first, last, keyword_only, optional, old_optional, annotated, quoted, in_async]


async def run_once(function: Callable[..., Any], **arguments: Any) -> AgentState:
    asked = call(function.__name__, id="c1", **arguments)
    agent = Agent(ScriptedModel([asked, "ok"]), tools=[function], new_id=SequentialIds())
    return await agent.run("Go")


@pytest.mark.parametrize("function", PLACES)
async def test_the_context_is_given_wherever_it_stands(function: Callable[..., Any]) -> None:
    state = await run_once(function, x=7)

    assert state.steps[0].step.tool_executions[0].text == "c1:7"


@pytest.mark.parametrize("function", PLACES)
def test_the_model_does_not_see_the_context(function: Callable[..., Any]) -> None:
    assert list(FunctionTool(function).schema.parameters["properties"]) == ["x"]


async def test_the_model_cannot_send_the_context() -> None:
    state = await run_once(first, x=7, context={"call_id": "forged"})

    assert "unknown arguments: context" in state.steps[0].step.tool_executions[0].text


async def test_two_contexts_are_both_filled() -> None:
    async def greedy(one: ToolContext, two: ToolContext) -> bool:
        return one is two

    state = await run_once(greedy)

    assert state.steps[0].step.tool_executions[0].text == "true"


async def test_the_idempotency_key_is_unique_to_the_call() -> None:
    keys: list[str] = []

    async def note(context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        return "ok"

    # Some providers use the same ids again in every response.
    turns = [[call("note", id="a"), call("note", id="b")], call("note", id="a"), "ok"]
    state = await Agent(ScriptedModel(turns), tools=[note], new_id=SequentialIds()).run("Go")
    assert state.execution is not None

    assert len(set(keys)) == 3
    assert keys == [f"{state.execution.id}:1:a", f"{state.execution.id}:1:b", keys[2]]
    assert keys[2] == f"{state.execution.id}:2:a"


async def test_the_state_in_the_context_is_the_one_before_the_step() -> None:
    async def look(context: ToolContext) -> str:
        texts = [message.text for message in context.state.messages]
        return f"{texts} step {context.state.step_number}"

    state = await run_once(look)

    assert state.steps[0].step.tool_executions[0].text == "['Go'] step 1"


async def test_progress_of_an_async_tool_is_told_between_start_and_end() -> None:
    async def work(context: ToolContext) -> str:
        context.progress("half", 0.5)
        context.progress("done")
        return "ok"

    recorder = EventRecorder()
    agent = Agent(ScriptedModel([call("work", id="c1"), "ok"]), tools=[work])
    agent.wiretap(recorder)
    await agent.run("Go")

    tool_events = [
        event
        for event in recorder.events
        if isinstance(event, ToolCallStarted | ToolCallProgressed | ToolCallCompleted)
    ]
    assert [type(event) for event in tool_events] == [
        ToolCallStarted,
        ToolCallProgressed,
        ToolCallProgressed,
        ToolCallCompleted,
    ]
    told = recorder.of(ToolCallProgressed)
    assert [(e.tool, e.call_id, e.message, e.fraction) for e in told] == [
        ("work", "c1", "half", 0.5),
        ("work", "c1", "done", None),
    ]


async def test_progress_from_a_thread_is_told_before_the_call_completes() -> None:
    def work(context: ToolContext) -> str:
        for part in range(3):
            context.progress(f"part {part}", part / 3)
        return "ok"

    recorder = EventRecorder()
    agent = Agent(ScriptedModel([call("work", id="c1"), "ok"]), tools=[work])
    agent.wiretap(recorder)
    await agent.run("Go")

    assert [event.message for event in recorder.of(ToolCallProgressed)] == [
        "part 0",
        "part 1",
        "part 2",
    ]
    assert recorder.names.index("ToolCallCompleted") > max(
        place for place, name in enumerate(recorder.names) if name == "ToolCallProgressed"
    )
