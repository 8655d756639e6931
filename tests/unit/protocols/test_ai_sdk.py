"""The chunks of an AI SDK stream: their order, their ends, and what leaving early does."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import UseSubagents
from stepwell.capabilities.user_input import UseUserInput
from stepwell.continuation import Cancellation
from stepwell.errors import ModelError, StepwellError
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import FinishReason, ToolCall
from stepwell.models import ModelRequest, ModelResponse, TextDelta
from stepwell.protocols.ai_sdk import (
    AI_SDK_DONE,
    AI_SDK_HEADERS,
    ai_sdk_chunks,
    ai_sdk_stream,
    encode_sse,
)
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import AgentState
from stepwell.testing import DeterministicAgentDriver, MockTool, ScriptedModel, call
from stepwell.tools import tool
from tests.answers import answer_call

Json = dict[str, Any]


async def chunks_of(agent: Agent, task: str | AgentState = "Go", **options: Any) -> list[Json]:
    return [chunk async for chunk in ai_sdk_chunks(agent, task, message_id="m", **options)]


def types(chunks: Sequence[Json]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


def only(chunks: Sequence[Json], kind: str) -> Json:
    (chunk,) = [chunk for chunk in chunks if chunk["type"] == kind]
    return chunk


ENDING = ["data-stepwell-stop", "message-metadata"]


async def test_a_tool_and_an_answer_are_told_in_order() -> None:
    echo = MockTool.returning("echo", {"said": "hi"})
    agent = Agent(ScriptedModel([call("echo", id="c1", text="hi"), "It said hi."]), tools=[echo])
    chunks = await chunks_of(agent)
    assert types(chunks) == [
        "start",
        *("start-step", "tool-input-start", "tool-input-available", "tool-output-available"),
        *("finish-step", "start-step", "text-start", "text-delta", "text-delta", "text-delta"),
        *("text-end", "finish-step", *ENDING, "finish"),
    ]
    assert chunks[0] == {"type": "start", "messageId": "m"}
    called = {"toolCallId": "c1", "toolName": "echo", "dynamic": True}
    assert chunks[3] == {"type": "tool-input-available", **called, "input": {"text": "hi"}}
    assert chunks[4]["output"] == {"said": "hi"}
    assert "".join(c["delta"] for c in chunks if c["type"] == "text-delta") == "It said hi."
    assert chunks[-1] == {"type": "finish", "finishReason": "stop"}
    usage = only(chunks, "message-metadata")["messageMetadata"]["usage"]
    assert usage["totalTokens"] == 30


async def test_the_note_on_a_repeated_call_is_a_part_beside_its_output() -> None:
    echo = MockTool.returning("echo", {"said": "hi"})
    calls = [call("echo", id=f"c{n}", text="hi") for n in range(3)]
    chunks = await chunks_of(Agent(ScriptedModel([*calls, "Done."]), tools=[echo]))
    outputs = [c["output"] for c in chunks if c["type"] == "tool-output-available"]
    assert outputs == [{"said": "hi"}] * 3
    part = only(chunks, "data-stepwell-note")
    assert part["id"] == part["data"]["tool_call_id"] == "c2"
    assert "call 3 in a row of echo" in part["data"]["note"]
    assert types(chunks)[chunks.index(part) - 1] == "tool-output-available"


async def test_a_failed_run_tells_everything_before_its_error() -> None:
    chunks = await chunks_of(Agent(ScriptedModel([ModelError("down", kind="server")])))
    assert types(chunks)[-4:] == [*ENDING, "error", "finish"]
    assert only(chunks, "error")["errorText"] == "ModelError: down"
    assert chunks[-1]["finishReason"] == "error"


async def test_a_cancelled_run_ends_with_an_abort() -> None:
    cancellation = Cancellation()
    cancellation.request("closed")
    chunks = await chunks_of(Agent(ScriptedModel(["never"])), cancellation=cancellation)
    assert types(chunks) == ["start", *ENDING, "abort", "finish"]
    assert "closed" in only(chunks, "abort")["reason"]
    assert only(chunks, "data-stepwell-stop")["data"]["stop_reason"] == "user_requested"


async def test_an_empty_task_is_an_error_in_the_stream() -> None:
    chunks = await chunks_of(Agent(ScriptedModel(["never"])), "")
    assert types(chunks) == ["start", *ENDING, "error", "finish"]
    assert "the text is empty" in only(chunks, "error")["errorText"]


async def test_a_limit_that_raises_for_python_is_a_stop_for_the_client() -> None:
    agent = Agent(
        ScriptedModel(lambda _: call("echo", id="c1")),
        tools=[MockTool.returning("echo", 1)],
        max_steps=1,
        at_limit="raise",
    )
    chunks = await chunks_of(agent)
    assert only(chunks, "data-stepwell-stop")["data"]["stop_reason"] == "steps_limit"
    assert types(chunks)[-3:] == [*ENDING, "finish"]


async def test_a_state_that_cannot_be_kept_is_an_error_in_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def keep(_: AgentState) -> None:
        raise OSError("disk full at secret place")

    chunks = await chunks_of(Agent(ScriptedModel(["Hi."])), on_state=keep)
    assert only(chunks, "error")["errorText"] == "the run broke off (OSError)"
    assert chunks[-1] == {"type": "finish", "finishReason": "error"}
    assert "broke off" in caplog.text


async def test_the_final_state_is_kept_before_the_end_is_told() -> None:
    kept: list[AgentState] = []

    async def keep(state: AgentState) -> None:
        await asyncio.sleep(0)
        kept.append(state)

    async for chunk in ai_sdk_chunks(Agent(ScriptedModel(["Hi."])), "Go", on_state=keep):
        assert bool(kept) == (chunk["type"] in (*ENDING, "finish-step", "finish"))
    assert [state.final_response for state in kept] == ["Hi."]


async def test_a_blocked_call_has_an_error() -> None:
    def block(context: HookContext) -> HookContext:
        return context.block("not today")

    echo = MockTool.returning("echo", 1)
    hook = make_hook(HookTrigger.BEFORE_TOOL, block)
    agent = Agent(ScriptedModel([call("echo", id="c1"), "No."]), tools=[echo], hooks=[hook])
    chunks = await chunks_of(agent)
    assert only(chunks, "tool-output-error")["errorText"] == "Error: Blocked: not today"


async def test_calls_that_never_began_have_an_error() -> None:
    """A hook ends the run between two calls; no event tells of the second."""

    def stop(context: HookContext) -> HookContext:
        raise StepwellError("hook is broken")

    echo = MockTool.returning("echo", 1)
    hook = make_hook(HookTrigger.BEFORE_TOOL, stop)
    calls = [call("echo", id="c1"), call("echo", id="c2")]
    agent = Agent(ScriptedModel([calls, "No."]), tools=[echo], hooks=[hook])
    chunks = await chunks_of(agent)
    told = [c["toolCallId"] for c in chunks if c["type"] == "tool-output-error"]
    assert told == ["c1", "c2"]
    assert types(chunks)[-1] == "finish"


async def test_a_tool_that_gives_nothing_has_an_empty_output() -> None:
    agent = Agent(
        ScriptedModel([call("echo", id="c1"), "Done."]), tools=[MockTool.returning("echo", None)]
    )
    assert only(await chunks_of(agent), "tool-output-available")["output"] is None


async def test_a_question_leaves_its_call_open() -> None:
    model = ScriptedModel([call("user_input", id="q1", question="Which?"), "Fine."])
    agent = Agent(model, capabilities=[UseUserInput()])
    chunks = await chunks_of(agent)
    assert not [c for c in chunks if c["type"].startswith("tool-output")]
    assert types(chunks)[-4:] == ["finish-step", *ENDING, "finish"]
    assert chunks[-1]["finishReason"] == "tool-calls"


async def test_a_call_of_a_subagent_that_waits_is_not_told_as_completed() -> None:
    spec = AgentSpec(name="asker", description="Asks.", system_prompt="You ask.")
    turns = [
        call("spawn_subagent", id="s1", subagent="asker", prompt="Ask"),
        call("user_input", id="q1", question="Which?"),
    ]
    subagents = UseSubagents(AgentRegistry([spec]))
    agent = Agent(ScriptedModel(turns), capabilities=[UseUserInput(), subagents])
    parts = [c for c in await chunks_of(agent) if c["type"] == "data-stepwell-subagent"]
    assert [tool["status"] for tool in parts[-1]["data"]["tools"]] == ["waiting"]


async def test_an_approved_call_goes_on_in_the_clients_step() -> None:
    model = ScriptedModel([call("delete", id="d1", path="a"), "Gone."])
    delete = MockTool.returning("delete", "gone")
    agent = Agent(model, tools=[delete], capabilities=[UseApprovals("delete")])
    kept: list[AgentState] = []
    asked = only(await chunks_of(agent, on_state=kept.append), "tool-approval-request")
    assert asked["toolCallId"] == "d1"
    chunks = await chunks_of(agent, answer_call(kept[0], "d1", True))
    assert types(chunks)[:5] == [
        *("start", "tool-input-start", "tool-input-available", "tool-output-available"),
        "start-step",
    ]


async def test_answered_calls_of_a_run_without_steps_left_have_an_error() -> None:
    """Else a client that sends approvals by itself would send this one for ever."""
    agent = Agent(
        ScriptedModel([call("delete", id="d1"), "Gone."]),
        tools=[MockTool.returning("delete", "gone")],
        capabilities=[UseApprovals("delete")],
        max_steps=1,
    )
    kept: list[AgentState] = []
    await chunks_of(agent, on_state=kept.append)
    chunks = await chunks_of(agent, answer_call(kept[0], "d1", True))
    assert "Not run" in only(chunks, "tool-output-error")["errorText"]
    assert types(chunks)[-5:] == ["start-step", "finish-step", *ENDING, "finish"]


async def test_a_response_that_breaks_off_leaves_no_text_open() -> None:
    class Broken:
        name = "broken"

        async def respond(self, request: Any) -> ModelResponse:
            raise ModelError("gone")

        async def stream(self, request: Any) -> Any:
            yield TextDelta("Half a ")
            raise ModelError("gone", retryable=False)

    chunks = await chunks_of(Agent(Broken()))
    assert types(chunks)[2:5] == ["text-start", "text-delta", "text-end"]
    assert only(chunks, "error")["errorText"] == "ModelError: gone"


async def test_text_that_was_not_streamed_is_told_all_the_same() -> None:
    agent = Agent(driver=DeterministicAgentDriver.from_responses("From the driver."))
    assert "From the driver." in [c.get("delta") for c in await chunks_of(agent)]


@pytest.mark.parametrize("reason", list(FinishReason))
async def test_every_finish_reason_has_a_word(reason: FinishReason) -> None:
    agent = Agent(ScriptedModel([ModelResponse(text="Hi.", finish_reason=reason)]))
    assert (await chunks_of(agent))[-1]["finishReason"] == reason.value.replace("_", "-")


async def test_malformed_arguments_have_an_error() -> None:
    bad = ToolCall(id="c1", name="echo", malformed="{oops")
    agent = Agent(ScriptedModel([bad, "Sorry."]), tools=[MockTool.returning("echo", 1)])
    assert "{oops" in only(await chunks_of(agent), "tool-output-error")["errorText"]


async def test_leaving_early_cancels_the_run() -> None:
    ended = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    stream = ai_sdk_stream(Agent(ScriptedModel([call("wait"), "never"]), tools=[wait]), "Go")
    async for piece in stream:
        if b"tool-input-available" in piece:
            break
    await stream.aclose()
    assert ended.is_set()


async def test_runs_of_one_agent_at_once_do_not_mix() -> None:
    spec = AgentSpec(name="echo", description="Echoes.", system_prompt="You echo.")

    def turns(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if last.is_tool():
            return f"parent of {last.text}"
        if last.text.startswith("inner"):
            return f"child {last.text}"
        return call("spawn_subagent", subagent="echo", prompt=f"inner {last.text}")

    agent = Agent(ScriptedModel(turns), capabilities=[UseSubagents(AgentRegistry([spec]))])
    both = await asyncio.gather(chunks_of(agent, "one"), chunks_of(agent, "two"))
    for name, chunks in zip(("one", "two"), both, strict=True):
        said = "".join(c["delta"] for c in chunks if c["type"] == "text-delta")
        assert said == f"parent of child inner {name}"
        parts = [c["data"] for c in chunks if c["type"] == "data-stepwell-subagent"]
        assert {part["prompt"] for part in parts} == {f"inner {name}"}
        live = [c["data"]["delta"] for c in chunks if c["type"].endswith("subagent-text")]
        assert "".join(live) == parts[-1]["text"] == f"child inner {name}"


async def test_the_stream_is_encoded_with_its_mark_at_the_end() -> None:
    agent = Agent(ScriptedModel(["Zwei\nZeilen: ü"]))
    pieces = [piece async for piece in ai_sdk_stream(agent, "Go")]
    assert pieces[-1] == AI_SDK_DONE == b"data: [DONE]\n\n"
    assert all(p.startswith(b"data: ") and p.endswith(b"\n\n") for p in pieces)
    assert all(p.count(b"\n") == 2 for p in pieces)
    assert AI_SDK_HEADERS["x-vercel-ai-ui-message-stream"] == "v1"
    assert encode_sse({"type": "x", "delta": "ü"}) == 'data: {"type":"x","delta":"ü"}\n\n'.encode()
