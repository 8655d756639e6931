"""Runs as the real AI SDK shows them: its transport, its schema, its chat."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import UseSubagents
from stepwell.capabilities.user_input import UseUserInput
from stepwell.criteria import ErrorPolicy
from stepwell.errors import ModelError
from stepwell.messages import FinishReason, ThinkingPart, ToolCall, Usage
from stepwell.models import (
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    StreamPart,
    TextDelta,
    ThinkingDelta,
)
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import AgentState
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools import ToolContext, tool
from tests.servers.ai_sdk_chat import ChatClient, client_running, missing, serving

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no AI SDK client: {missing()}")

Json = dict[str, Any]


@pytest.fixture(scope="module")
def client() -> Iterator[ChatClient]:
    with client_running() as running:
        yield running


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


def of_kind(message: Json, *kinds: str) -> list[Json]:
    return [part for part in message["parts"] if part["type"] in kinds]


def texts(message: Json) -> list[str]:
    return [part["text"] for part in of_kind(message, "text")]


def stop_of(message: Json) -> Json:
    (part,) = of_kind(message, "data-stepwell-stop")
    return part["data"]


def assert_shows(message: Json, state: AgentState) -> None:
    """The message has the texts and tools of the state's last execution, in order."""
    steps = [record.step for record in state.steps]
    assert texts(message) == [step.text for step in steps if step.text]
    ran = [e for step in steps if step.response is not None for e in step.tool_executions]
    ran.sort(key=lambda execution: execution.call.id)  # they are shown as they begin
    shown = sorted(of_kind(message, "dynamic-tool"), key=lambda part: part["toolCallId"])
    assert [(t["toolCallId"], t["toolName"]) for t in shown] == [
        (e.call.id, e.call.name) for e in ran
    ]
    for part, execution in zip(shown, ran, strict=True):
        assert part["input"] == execution.call.arguments
        if execution.is_error:
            assert (part["state"], part["errorText"]) == ("output-error", execution.text)
        else:
            assert (part["state"], part.get("output")) == ("output-available", execution.value)
    assert stop_of(message)["status"] == state.status.value
    assert stop_of(message)["explanation"] == state.explain()
    assert message["metadata"]["usage"]["totalTokens"] == state.usage.total_tokens
    assert all(part.get("state") != "streaming" for part in message["parts"])


async def test_text_arrives_and_a_second_turn_goes_on(client: ChatClient) -> None:
    model = ScriptedModel(["Hello, who are you?", "Nice to meet you, Ada."])
    async with serving(Agent(model), stores=False) as server:
        await client.begin(server)
        first = await client.say("Hi")
        assert_shows(first["messages"][1], server.state)
        second = await client.say("I am Ada")
        assert texts(second["messages"][3]) == ["Nice to meet you, Ada."]
    assert [m.text for m in model.requests[1].messages] == [
        *("Hi", "Hello, who are you?", "I am Ada")
    ]
    assert second["errors"] == []
    assert [f["finishReason"] for f in second["finishes"]] == ["stop", "stop"]


async def test_parallel_tools_show_their_inputs_and_outputs(client: ChatClient) -> None:
    calls = [call("add", id="c1", a=1, b=2), call("add", id="c2", a=3, b=4)]
    model = ScriptedModel([calls, "3 and 7.", "As I said."])
    async with serving(Agent(model, tools=[add]), stores=False) as server:
        await client.begin(server, auto=True)
        shown = await client.say("Add")
        assert_shows(shown["messages"][1], server.state)
        assert shown["requests"] == 1
        first = server.state
        await client.say("Again?")
    posted_back = list(server.states[-1].messages)[: len(first.messages)]
    assert [m.parts for m in posted_back] == [m.parts for m in first.messages]


async def test_calls_of_two_steps_with_one_id_are_two_parts(client: ChatClient) -> None:
    turns = [call("add", id="c1", a=1, b=2), call("add", id="c1", a=3, b=4), "3 and 7.", "Yes."]
    model = ScriptedModel(turns)
    async with serving(Agent(model, tools=[add]), stores=False) as server:
        await client.begin(server, auto=True)
        message = (await client.say("Add"))["messages"][1]
        first = server.state
        done = await client.say("Sure?")
    tools = of_kind(message, "dynamic-tool")
    assert [(t["input"], t["state"], t["output"]) for t in tools] == [
        ({"a": 1, "b": 2}, "output-available", 3),
        ({"a": 3, "b": 4}, "output-available", 7),
    ]
    assert len({t["toolCallId"] for t in tools}) == 2
    assert (done["requests"], done["errors"]) == (2, [])
    posted_back = list(server.states[-1].messages)[: len(first.messages)]
    assert [m.parts for m in posted_back] == [m.parts for m in first.messages]


async def test_approvals_of_calls_with_one_id_are_given_one_by_one(client: ChatClient) -> None:
    turns = [call("delete", id="d1", path="a"), call("delete", id="d1", path="b"), "Done."]
    delete = MockTool.returning("delete", "gone")
    agent = Agent(ScriptedModel(turns), tools=[delete], capabilities=[UseApprovals("delete")])
    async with serving(agent) as server:
        await client.begin(server, auto=True)
        shown = await client.say("Delete a and b")
        for path in ("a", "b"):
            part = of_kind(shown["messages"][1], "dynamic-tool")[-1]
            assert (part["state"], part["input"]) == ("approval-requested", {"path": path})
            answer = {"id": part["approval"]["id"], "approved": path == "b"}
            shown = await client.do(approve=answer)
    tools = of_kind(shown["messages"][1], "dynamic-tool")
    assert [(t["input"]["path"], t["state"]) for t in tools] == [
        *(("a", "output-denied"), ("b", "output-available"))
    ]
    assert (len(delete.calls), shown["requests"], shown["errors"]) == (1, 3, [])


async def test_failing_unknown_and_malformed_calls_are_shown_as_errors(client: ChatClient) -> None:
    calls = [
        call("fail", id="c1", why="broken"),
        call("nothing", id="c2", x=1),
        ToolCall(id="c3", name="add", malformed="{a: 1"),
        call("add", id="c4", a="many", b=1),
    ]
    agent = Agent(
        ScriptedModel([calls, "It broke."]),
        tools=[add, fail],
        error_policy=ErrorPolicy.retry_tool_errors(),
    )
    async with serving(agent) as server:
        await client.begin(server)
        message = (await client.say("Go"))["messages"][1]
    assert_shows(message, server.state)
    assert [t["state"] for t in of_kind(message, "dynamic-tool")] == ["output-error"] * 4
    assert texts(message) == ["It broke."]


async def test_a_subagent_is_a_part_of_its_own(client: ChatClient) -> None:
    spec = AgentSpec(name="critic", description="Judges.", system_prompt="You judge.")

    def turns(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if last.text == "Is it good?":
            return call("add", id="inner", a=1, b=1)
        if last.is_tool() and last.tool_result is not None:
            inner = last.tool_result.tool_name == "add"
            return "It is very good." if inner else "The critic likes it."
        return call("spawn_subagent", id="s1", subagent="critic", prompt="Is it good?")

    agent = Agent(
        ScriptedModel(turns), tools=[add], capabilities=[UseSubagents(AgentRegistry([spec]))]
    )
    async with serving(agent) as server:
        await client.begin(server)
        shown = await client.say("Have it judged")
    message = shown["messages"][1]
    assert_shows(message, server.state)
    (part,) = of_kind(message, "data-stepwell-subagent")
    assert part["data"] | {"agent_id": "", "parent_agent_id": ""} == {
        "agent_id": "",
        "parent_agent_id": "",
        "tool_call_id": "s1",
        "name": "critic",
        "prompt": "Is it good?",
        "depth": 0,
        "status": "completed",
        "steps": 2,
        "tools": [{"tool_call_id": "inner", "name": "add", "status": "completed"}],
        "text": "It is very good.",
    }
    deltas = [p["data"]["delta"] for p in shown["data"] if p["type"].endswith("subagent-text")]
    assert "".join(deltas) == "It is very good."


@pytest.mark.parametrize("stores", [True, False])
async def test_a_question_is_answered_by_the_output_of_its_call(
    client: ChatClient, stores: bool
) -> None:
    question = call("user_input", id="q1", question="Which city?", options=["Oslo", "Bergen"])
    model = ScriptedModel([question, "Sunny in Oslo."])
    async with serving(Agent(model, capabilities=[UseUserInput()]), stores=stores) as server:
        await client.begin(server, auto=True)
        paused = await client.say("Weather?")
        (part,) = of_kind(paused["messages"][1], "dynamic-tool")
        assert part["state"] == "input-available"
        stop = stop_of(paused["messages"][1])
        assert (stop["status"], stop["stop_reason"]) == ("paused", "input_required")
        [asked] = stop["waits_for"]
        assert stop["waits_for"] == [
            {
                "question_id": asked["question_id"],
                "kind": "question",
                "prompt": "Which city?",
                "call_id": "q1",
                "tool_name": "user_input",
                "details": {"options": ["Oslo", "Bergen"]},
            }
        ]
        answer = {"tool": "user_input", "toolCallId": "q1", "output": "Oslo"}
        done = await client.do(output=answer)
    assert len(done["messages"]) == 2
    assert texts(done["messages"][1]) == ["Sunny in Oslo."]
    assert stop_of(done["messages"][1])["status"] == "completed"
    assert [m.text for m in model.requests[1].messages][-1] == "Oslo"
    assert (done["requests"], done["errors"]) == (2, [])
    assert [f["finishReason"] for f in done["finishes"]] == ["tool-calls", "stop"]


async def test_a_subagent_that_asks_for_approval_goes_on_in_the_same_part(
    client: ChatClient,
) -> None:
    spec = AgentSpec(name="cleaner", description="Cleans.", system_prompt="You clean.")
    delete = MockTool.returning("delete", "gone")
    turns = [
        [call("spawn_subagent", id="s1", subagent="cleaner", prompt="Clean up")],
        [call("delete", id="d1", path="a"), call("delete", id="d2", path="b")],
        *("Cleaned.", "All is clean."),
    ]
    agent = Agent(
        ScriptedModel(turns),
        tools=[delete],
        capabilities=[UseApprovals("delete"), UseSubagents(AgentRegistry([spec]))],
    )
    async with serving(agent) as server:
        await client.begin(server, auto=True)
        shown = await client.say("Clean")
        for asked in ("a", "b"):
            (part,) = of_kind(shown["messages"][1], "dynamic-tool")
            assert part["state"] == "approval-requested"
            (waits_for,) = stop_of(shown["messages"][1])["waits_for"]
            assert waits_for["details"]["arguments"] == {"path": asked}
            answer = {"id": part["approval"]["id"], "approved": True}
            shown = await client.do(approve=answer)
    message = shown["messages"][1]
    assert len(delete.calls) == 2
    assert (texts(message), shown["requests"], shown["errors"]) == (["All is clean."], 3, [])
    (part,) = of_kind(message, "data-stepwell-subagent")
    assert (part["data"]["status"], part["data"]["text"]) == ("completed", "Cleaned.")


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_lets_the_call_run_or_not(client: ChatClient, approved: bool) -> None:
    model = ScriptedModel([call("delete", id="d1", path="a"), "Done with it."])
    delete = MockTool.returning("delete", "gone")
    agent = Agent(model, tools=[delete], capabilities=[UseApprovals("delete")])
    async with serving(agent) as server:
        await client.begin(server, auto=True)
        paused = await client.say("Delete a")
        (part,) = of_kind(paused["messages"][1], "dynamic-tool")
        assert (part["state"], part["input"]) == ("approval-requested", {"path": "a"})
        answer = {"id": part["approval"]["id"], "approved": approved, "reason": "because"}
        done = await client.do(approve=answer)
    (part,) = of_kind(done["messages"][1], "dynamic-tool")
    assert part["state"] == ("output-available" if approved else "output-denied")
    assert part.get("output") == ("gone" if approved else None)
    assert len(delete.calls) == approved
    assert texts(done["messages"][1]) == ["Done with it."]
    assert (done["requests"], done["errors"], len(done["messages"])) == (2, [], 2)


async def test_a_claimed_approval_runs_nothing_without_the_stored_run(client: ChatClient) -> None:
    model = ScriptedModel([call("delete", id="d1", path="a"), "I could not."])
    delete = MockTool.returning("delete", "gone")
    agent = Agent(model, tools=[delete], capabilities=[UseApprovals("delete")])
    async with serving(agent, stores=False) as server:
        await client.begin(server)
        paused = await client.say("Delete a")
        (part,) = of_kind(paused["messages"][1], "dynamic-tool")
        await client.do(approve={"id": part["approval"]["id"], "approved": True})
        await client.say("Go on")
    assert delete.calls == []
    assert "Not run" in server.states[-1].messages[2].text


async def test_a_limit_stops_the_chat_and_the_client_does_not_start_over(
    client: ChatClient,
) -> None:
    agent = Agent(ScriptedModel(lambda _: call("add", a=1, b=1)), tools=[add], max_steps=2)
    async with serving(agent) as server:
        await client.begin(server, auto=True)
        shown = await client.say("Go")
    assert_shows(shown["messages"][1], server.state)
    assert stop_of(shown["messages"][1])["stop_reason"] == "steps_limit"
    assert (shown["requests"], shown["status"], shown["errors"]) == (1, "ready", [])


async def test_a_model_failure_is_the_chats_error_and_the_chat_goes_on(client: ChatClient) -> None:
    model = ScriptedModel([ModelError("the provider is down", kind="server"), "Back again."])
    async with serving(Agent(model), stores=False) as server:
        await client.begin(server)
        failed = await client.say("Hi")
        assert (failed["status"], failed["errors"]) == (
            "error",
            ["ModelError: the provider is down"],
        )
        assert stop_of(failed["messages"][1])["stop_reason"] == "error"
        again = await client.say("And now?")
    assert (again["status"], texts(again["messages"][3])) == ("ready", ["Back again."])


async def test_a_run_cancelled_on_the_server_ends_in_good_order(client: ChatClient) -> None:
    async with serving(Agent(ScriptedModel([call("wait", id="w1"), "never"]))) as server:

        @tool
        async def wait(context: ToolContext) -> str:
            """Wait for ever."""
            server.cancellation.request("closed the shop")
            await asyncio.Event().wait()
            return "never"

        server.agent = Agent(ScriptedModel([call("wait", id="w1"), "never"]), tools=[wait])
        await client.begin(server, auto=True)
        shown = await client.say("Wait")
    assert_shows(shown["messages"][1], server.state)
    assert stop_of(shown["messages"][1])["status"] == "cancelled"
    assert (shown["status"], shown["errors"], shown["requests"]) == ("ready", [], 1)


async def test_a_client_that_stops_ends_the_run(client: ChatClient) -> None:
    was_cancelled = asyncio.Event()

    @tool
    async def wait(context: ToolContext) -> str:
        """Wait for ever."""
        context.progress("waiting")
        try:
            while True:
                await asyncio.sleep(0.01)
                context.progress("still waiting")
        finally:
            was_cancelled.set()

    agent = Agent(ScriptedModel([call("wait", id="w1"), "never"]), tools=[wait])
    async with serving(agent) as server:
        await client.begin(server, stopAfter=2)
        shown = await client.say("Wait")
        async with asyncio.timeout(90):
            await was_cancelled.wait()
    assert shown["finishes"][0]["isAbort"]
    assert [p["data"]["message"] for p in shown["data"]][:2] == ["waiting", "still waiting"]
    assert server.states == []


class Thinker:
    """A model that thinks, speaks and calls in pieces."""

    name = "thinker"

    async def respond(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(
            text='Grüße, 世界 👩‍👩‍👧 \u2028 "quoted"\r\n',
            thinking=(ThinkingPart("Hm, 🤔 so."),),
            finish_reason=FinishReason.LENGTH,
            usage=Usage(input_tokens=1, output_tokens=2, reasoning_tokens=1),
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        response = await self.respond(request)
        for letter in response.thinking[0].text:
            yield ThinkingDelta(letter)
        for letter in response.text:
            yield TextDelta(letter)
        yield ResponseEnd(response)


async def test_thinking_and_text_of_all_languages_arrive_whole(client: ChatClient) -> None:
    async with serving(Agent(Thinker()), stores=False) as server:
        await client.begin(server)
        shown = await client.say("שלום 👋")
        assert_shows(shown["messages"][1], server.state)
        again = await client.say("and again")
    (thought,) = of_kind(shown["messages"][1], "reasoning")
    assert (thought["text"], thought["state"]) == ("Hm, 🤔 so.", "done")
    assert shown["finishes"][0]["finishReason"] == "length"
    assert server.states[-1].messages[0].text == "שלום 👋"
    assert again["errors"] == []


async def test_values_that_javascript_would_refuse_or_change_arrive(client: ChatClient) -> None:
    odd = {"__proto__": 1, "id": 2**60, "constructor": {"prototype": 1}, "nan": float("nan")}
    agent = Agent(
        ScriptedModel([ToolCall(id="c1", name="odd", arguments={"__proto__": {"a": 1}}), "Done."]),
        tools=[MockTool.returning("odd", odd)],
    )
    async with serving(agent) as server:
        await client.begin(server)
        shown = await client.say("Go")
    (part,) = of_kind(shown["messages"][1], "dynamic-tool")
    assert shown["errors"] == []
    assert part["output"]["id"] == str(2**60)
    assert texts(shown["messages"][1]) == ["Done."]


async def test_regenerating_answers_the_same_message_anew(client: ChatClient) -> None:
    model = ScriptedModel(["First.", "Second."])
    async with serving(Agent(model)) as server:
        await client.begin(server)
        await client.say("Hi")
        again = await client.do(regenerate=True)
    assert [texts(m) for m in again["messages"]] == [["Hi"], ["Second."]]
    assert [m.text for m in server.state.messages] == ["Hi", "Second."]


async def test_a_refused_body_is_the_chats_error(client: ChatClient) -> None:
    async with serving(Agent(ScriptedModel(["Hi."]))) as server:
        await client.begin(server)
        bad = {"type": "file", "mediaType": "text/plain", "url": "file:///etc/passwd"}
        shown = await client.say("Read it", files=[bad])
    assert shown["status"] == "error"
    assert "messages[0].parts[0].url" in shown["errors"][0]
