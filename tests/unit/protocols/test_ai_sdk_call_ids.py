"""Models that use a call id again: every call has an id of its own in an AI SDK stream."""

from collections.abc import Sequence
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import UseSubagents
from stepwell.events import AgentEvent
from stepwell.journal import Projector
from stepwell.messages import Message, ToolCall
from stepwell.protocols.ai_sdk import AiSdkTranslator, ai_sdk_chunks
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import AgentState
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools import ToolContext, tool
from tests.answers import answer_call

Json = dict[str, Any]


@tool
def add(a: int, b: int, context: ToolContext) -> int:
    """Add two numbers."""
    context.progress("adding")
    return a + b


async def chunks_of(agent: Agent, task: str | AgentState = "Go", **options: Any) -> list[Json]:
    return [chunk async for chunk in ai_sdk_chunks(agent, task, message_id="m", **options)]


def by_call(chunks: Sequence[Json], kind: str, field: str) -> dict[str, Any]:
    """A field of the chunks of that kind, by tool call id. Fails if an id comes twice."""
    pairs = [(chunk["toolCallId"], chunk[field]) for chunk in chunks if chunk["type"] == kind]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


async def test_a_call_id_used_again_is_another_call() -> None:
    turns = [call("add", id="c", a=1, b=2), call("add", id="c", a=3, b=4), "3 and 7."]
    chunks = await chunks_of(Agent(ScriptedModel(turns), tools=[add]))
    inputs = by_call(chunks, "tool-input-available", "input")
    outputs = by_call(chunks, "tool-output-available", "output")
    assert list(inputs.values()) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert outputs == dict(zip(inputs, (3, 7), strict=True))
    progress = [c["data"] for c in chunks if c["type"] == "data-stepwell-progress"]
    assert [data["tool_call_id"] for data in progress] == list(inputs)


async def test_a_call_id_of_an_earlier_turn_is_not_used_for_another_call() -> None:
    before = Message.assistant("", [ToolCall(id="c", name="add")], id="a1:1:0")
    state = AgentState.empty().with_message(Message.user("Go"), before)
    turns = [call("add", id="c", a=3, b=4), "7."]
    chunks = await chunks_of(Agent(ScriptedModel(turns), tools=[add]), state)
    assert "c" not in by_call(chunks, "tool-output-available", "output")


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approved_call_keeps_the_id_under_which_it_was_asked_for(approved: bool) -> None:
    turns = [call("look", id="c"), call("delete", id="c", path="a"), call("look", id="c"), "Gone."]
    tools = [MockTool.returning("look", "seen"), MockTool.returning("delete", "gone")]
    agent = Agent(ScriptedModel(turns), tools=tools, capabilities=[UseApprovals("delete")])
    kept: list[AgentState] = []
    chunks = await chunks_of(agent, on_state=kept.append)
    ((asked, question),) = by_call(chunks, "tool-approval-request", "approvalId").items()
    assert by_call(chunks, "tool-input-available", "input")[asked] == {"path": "a"}
    stop = next(c["data"] for c in chunks if c["type"] == "data-stepwell-stop")
    assert [(a["call_id"], a["question_id"]) for a in stop["waits_for"]] == [(asked, question)]

    again = await chunks_of(agent, answer_call(kept[-1], "c", approved))
    outputs = [c["toolCallId"] for c in again if c["type"].startswith("tool-output")]
    assert outputs[0] == asked
    assert len({"c", *outputs}) == 3


async def test_a_stream_that_is_read_across_a_pause_keeps_the_ids() -> None:
    """As of a page that is loaded anew while the run goes on."""
    turns = [call("delete", id="c", path="a"), call("delete", id="c", path="b"), "Gone."]
    delete = MockTool.returning("delete", "gone")
    agent = Agent(ScriptedModel(turns), tools=[delete], capabilities=[UseApprovals("delete")])
    translator, projector = AiSdkTranslator("m"), Projector()
    chunks: list[Json] = []

    def hear(event: AgentEvent) -> None:
        for entry in projector.entries(event):
            chunks.extend(translator.translate(entry))

    with_tap = agent.wiretap(hear)
    state = await agent.run("Go")
    for _ in range(2):
        state = await agent.run(answer_call(state, "c", True))
    chunks += translator.finish(state)
    with_tap()
    inputs = [(c["toolCallId"], c["input"]) for c in chunks if c["type"] == "tool-input-available"]
    outputs = by_call(chunks, "tool-output-available", "output")
    assert len(outputs) == len(dict(inputs)) == 2
    assert not [c for c in chunks if c["type"] == "tool-output-error"]


async def test_calls_of_subagents_and_the_calls_that_spawn_them_have_their_own_ids() -> None:
    spec = AgentSpec(name="critic", description="Judges.", system_prompt="You judge.")
    spawn = call("spawn_subagent", id="c", subagent="critic", prompt="Is it good?")
    child = [call("add", id="c", a=1, b=1), call("add", id="c", a=2, b=2), "Good."]
    model = ScriptedModel([spawn, *child, spawn, *child, "Twice good."])
    agent = Agent(model, tools=[add], capabilities=[UseSubagents(AgentRegistry([spec]))])
    chunks = await chunks_of(agent)
    calls = list(by_call(chunks, "tool-output-available", "output"))
    parts = {c["id"]: c["data"] for c in chunks if c["type"] == "data-stepwell-subagent"}
    assert [part["tool_call_id"] for part in parts.values()] == calls
    assert len(set(calls)) == 2
    for part in parts.values():
        assert [entry["status"] for entry in part["tools"]] == ["completed", "completed"]
        assert len({entry["tool_call_id"] for entry in part["tools"]}) == 2
