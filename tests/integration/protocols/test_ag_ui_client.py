"""Runs seen by the real AG-UI client: it checks the order, builds its list, and warns of nothing.

In each scenario the client's list must equal the history that the server keeps.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    ErrorPolicy,
    HookContext,
    InputRequired,
    Message,
    ModelError,
    UseApprovals,
    UseSubagents,
    UseUserInput,
    make_hook,
)
from stepwell.messages import FinishReason, Role, ThinkingPart, ToolCall
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
from stepwell.testing import MockTool, ScriptedModel, call
from tests.servers.ag_ui_server import AgUiServer, missing, run_client, serving

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"AG-UI client: {missing()}")

SAID = {"id": "u1", "role": "user", "content": "Go on, please."}


async def seen(
    agent: Agent, *runs: dict[str, Any], keeps_states: bool = True
) -> tuple[AgUiServer, list[dict[str, Any]]]:
    server = AgUiServer(agent, keeps_states=keeps_states)
    async with serving(server):
        return server, await run_client(server.url, *(runs or ({},)), messages=[SAID])


def assert_same(shown: list[dict[str, Any]], state: AgentState | None) -> None:
    """Roles, ids, texts, calls with arguments and results; reasoning is only shown."""
    assert state is not None
    assert [as_stored(m) for m in shown if m["role"] != "reasoning"] == [
        told(m) for m in state.messages
    ]


def as_stored(shown: dict[str, Any]) -> tuple[Any, ...]:
    calls = [
        (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in shown.get("toolCalls", [])
    ]
    return (
        shown["id"],
        shown["role"],
        shown.get("content", ""),
        calls,
        shown.get("toolCallId"),
        "error" in shown,
    )


def told(message: Message) -> tuple[Any, ...]:
    result = message.tool_result
    return (
        message.id,
        message.role.value,
        message.text,
        [(c.id, c.name, c.arguments) for c in message.tool_calls],
        None if result is None else result.call_id,
        result is not None and result.is_error,
    )


async def test_text_is_streamed_under_the_id_it_is_stored_with() -> None:
    server, [run] = await seen(Agent(ScriptedModel(["Grüße aus 東京 🌸 \u2028 done."])))

    assert run["error"] is None
    assert run["types"].count("TEXT_MESSAGE_CONTENT") > 2
    assert_same(run["live"], server.reached)
    assert_same(run["messages"], server.reached)
    assert run["messages"][-1]["content"] == "Grüße aus 東京 🌸 \u2028 done."
    assert run["outcome"] == "success"
    assert run["result"] == "Grüße aus 東京 🌸 \u2028 done."


async def test_parallel_calls_end_in_any_order_and_are_listed_in_theirs() -> None:
    first_may_end = asyncio.Event()

    async def slow() -> str:
        await first_may_end.wait()
        return "slow"

    def fast() -> str:
        first_may_end.set()
        return "fast"

    calls = [call("slow", id="a"), call("fast", id="b"), call("unknown", id="c", x=1)]
    agent = Agent(
        ScriptedModel([calls, "Done."]), tools=[MockTool("slow", slow), MockTool("fast", fast)]
    )
    server, [run] = await seen(agent)

    assert run["error"] is None
    assert_same(run["messages"], server.reached)
    results = [e["toolCallId"] for e in server.sent[0] if e["type"] == "TOOL_CALL_RESULT"]
    assert results == ["c", "b", "a"]


async def test_a_failed_tool_and_the_recovery() -> None:
    broken = ToolCall(id="m", name="good", arguments={}, malformed='{"x": ')
    agent = Agent(
        ScriptedModel([call("bad", id="a", why="ünïcode"), [broken], "Recovered."]),
        tools=[MockTool.raising("bad", ValueError("boom")), MockTool.returning("good", 1)],
        error_policy=ErrorPolicy.retry_all(5),
    )
    server, [run] = await seen(agent)

    assert run["error"] is None
    assert_same(run["messages"], server.reached)
    assert "boom" in run["messages"][2]["error"]
    assert run["messages"][-1]["content"] == "Recovered."


async def test_an_id_that_a_provider_gives_again_is_another_call() -> None:
    turns = [call("good", id="same", x=1), call("good", id="same", x=2), "Done."]
    agent = Agent(ScriptedModel(turns), tools=[MockTool.returning("good", "ok")])
    _, [run] = await seen(agent)

    calls = [c for m in run["messages"] for c in m.get("toolCalls", [])]
    results = [m["toolCallId"] for m in run["messages"] if m["role"] == "tool"]
    assert [json.loads(c["function"]["arguments"])["x"] for c in calls] == [1, 2]
    assert [c["id"] for c in calls] == results
    assert len(set(results)) == 2
    live = [c for m in run["live"] for c in m.get("toolCalls", [])]
    assert [c["function"]["arguments"] for c in live] == ['{"x":1}', '{"x":2}']


def with_subagent(*turns: Any, **settings: Any) -> Agent:
    spec = AgentSpec(name="critic", description="Judges.", system_prompt="You judge.")
    subagents = UseSubagents(AgentRegistry([spec]))
    return Agent(ScriptedModel(turns), capabilities=[subagents], **settings)


SPAWN = call("spawn_subagent", id="c1", subagent="critic", prompt="Is it good?")


async def test_a_subagent_speaks_under_its_own_ids() -> None:
    agent = with_subagent(
        SPAWN,
        call("good", id="c1"),
        "Yes it is.",
        "It was judged.",
        tools=[MockTool.returning("good", "fine")],
    )
    server, [run] = await seen(agent)

    assert run["error"] is None
    assert_same(run["messages"], server.reached)
    assert run["types"].count("SUBAGENT_STARTED") == 1
    tags = {e.get("subagentRunId") for e in server.sent[0]} - {None}
    assert len(tags) == 1
    pieces = [e for e in server.sent[0] if e["type"] == "TEXT_MESSAGE_CONTENT"]
    own = "".join(e["delta"] for e in pieces if "subagentRunId" not in e)
    below = "".join(e["delta"] for e in pieces if "subagentRunId" in e)
    assert (below, own) == ("Yes it is.", "It was judged.")


async def test_a_question_pauses_and_its_answer_goes_on() -> None:
    question = call("user_input", id="q", question="Which airport?")
    agent = Agent(
        ScriptedModel([[question, call("good", id="g")], "You fly from Gatwick."]),
        tools=[MockTool.returning("good", "ok")],
        capabilities=[UseUserInput()],
    )
    answer = {"interruptId": "q", "status": "resolved", "payload": "Gatwick"}
    server, [paused, done] = await seen(agent, {}, {"resume": [answer]})

    assert (paused["error"], paused["outcome"]) == (None, "interrupt")
    [asked] = paused["interrupts"]
    assert (asked["toolCallId"], asked["message"]) == ("q", "Which airport?")
    assert asked["id"].startswith("q_")
    assert [m["metadata"] for m in paused["messages"] if "metadata" in m] == [
        {"stepwell": {"waiting": True}}
    ]
    assert (done["error"], done["outcome"], done["interrupts"]) == (None, "success", [])
    assert_same(done["messages"], server.reached)
    assert [m["content"] for m in done["messages"][2:]] == [
        "Gatwick",
        "ok",
        "You fly from Gatwick.",
    ]


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        ({"approved": True}, "deleted /a"),
        ({"approved": True, "editedArgs": {"path": "/b"}}, "deleted /b"),
        ({"approved": False, "message": "not today"}, "not today"),
    ],
)
async def test_an_approval_is_asked_for_and_given(payload: dict[str, Any], result: str) -> None:
    agent = Agent(
        ScriptedModel([[call("ls", id="l"), call("delete", id="d", path="/a")], "Done."]),
        tools=[
            MockTool("delete", lambda path: f"deleted {path}"),
            MockTool.returning("ls", ["/a"]),
        ],
        capabilities=[UseApprovals("delete")],
    )
    answer = {"interruptId": "d", "status": "resolved", "payload": payload}
    server, [paused, done] = await seen(agent, {}, {"resume": [answer]})

    assert (paused["error"], paused["outcome"]) == (None, "interrupt")
    assert paused["interrupts"][0]["reason"] == "tool_call"
    assert (done["error"], done["outcome"]) == (None, "success")
    assert_same(done["messages"], server.reached)
    assert result in done["messages"][3]["content"]


async def test_a_question_of_a_subagent_goes_through_its_parent() -> None:
    ask = MockTool("ask", lambda: InputRequired(prompt="Which one?"))
    agent = with_subagent(SPAWN, call("ask", id="q"), "It is blue.", "So it is blue.", tools=[ask])
    answer = {"interruptId": "c1", "status": "resolved", "payload": "blue"}
    server, [paused, done] = await seen(agent, {}, {"resume": [answer]})

    assert (paused["error"], paused["outcome"]) == (None, "interrupt")
    assert paused["interrupts"][0]["subagentRunId"]
    assert (done["error"], done["outcome"]) == (None, "success")
    assert_same(done["messages"], server.reached)
    assert done["messages"][-1]["content"] == "So it is blue."


async def test_a_limit_ends_the_run_with_its_reason() -> None:
    agent = Agent(
        ScriptedModel(lambda _: call("good")), tools=[MockTool.returning("good", 1)], max_steps=2
    )
    server, [run] = await seen(agent)

    assert (run["error"], run["outcome"]) == (None, "success")
    assert_same(run["messages"], server.reached)
    [stop] = run["custom"]["stepwell.stop"]
    assert (stop["status"], stop["stopReason"]) == ("stopped", "steps_limit")
    assert "2" in stop["explanation"]


async def test_a_run_that_waits_for_budget_is_granted_more() -> None:
    agent = Agent(
        ScriptedModel([call("good", id="g"), "Done."]),
        tools=[MockTool.returning("good", 1)],
        max_steps=1,
        at_limit="pause",
    )
    more = {"interruptId": "budget", "status": "resolved", "payload": {"steps": 3}}
    server, [paused, done] = await seen(agent, {}, {"resume": [more]})

    assert (paused["outcome"], paused["interrupts"][0]["reason"]) == ("interrupt", "budget")
    assert (done["error"], done["outcome"]) == (None, "success")
    assert_same(done["messages"], server.reached)


async def test_a_history_that_a_hook_changes_is_the_list_in_the_end() -> None:
    def cut(context: HookContext) -> HookContext | None:
        if context.state.step_number != 2:
            return None
        kept = [Message.system("In short: go.", id="summary"), *context.state.messages[-2:]]
        return context.with_state(context.state.with_messages(kept))

    agent = Agent(
        ScriptedModel([call("good", id="g"), "Done."]),
        tools=[MockTool.returning("good", 1)],
        hooks=[make_hook("before_step", cut)],
    )
    server, [run] = await seen(agent)

    assert run["error"] is None
    assert [m["role"] for m in run["messages"]] == ["system", "assistant", "tool", "assistant"]
    assert_same(run["messages"], server.reached)


class BreaksOff:
    """Streams some words, then fails."""

    name = "breaks-off"

    async def respond(self, request: ModelRequest) -> ModelResponse:
        raise ModelError("the line is dead")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        yield TextDelta("I was about to")
        raise ModelError("the line is dead")


async def test_a_model_that_fails_ends_in_an_error_without_its_half_answer() -> None:
    server, [run] = await seen(Agent(BreaksOff()))

    assert server.reached is not None
    assert server.reached.status is AgentStatus.FAILED
    assert run["ended"]["type"] == "RUN_ERROR"
    assert "the line is dead" in run["ended"]["message"]
    assert_same(run["messages"], server.reached)


class Thinks:
    """Streams reasoning, then an answer."""

    name = "thinks"

    async def respond(self, request: ModelRequest) -> ModelResponse:
        thinking = (ThinkingPart("Hm, let me see."),)
        return ModelResponse(
            text="Four.", thinking=thinking, finish_reason=FinishReason.STOP, model=self.name
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        yield ThinkingDelta("Hm, ")
        yield ThinkingDelta("let me see.")
        yield TextDelta("Four.")
        yield ResponseEnd(await self.respond(request))


async def test_reasoning_is_shown_before_the_answer() -> None:
    server, [run, again] = await seen(
        Agent(Thinks()), {}, {"say": {"id": "u2", "role": "user", "content": "And 3 + 3?"}}
    )

    assert (run["error"], again["error"]) == (None, None)
    assert [(m["role"], m["content"]) for m in run["messages"]] == [
        ("user", "Go on, please."),
        ("reasoning", "Hm, let me see."),
        ("assistant", "Four."),
    ]
    assert_same(again["messages"], server.reached)
    assert [m["role"] for m in again["messages"]] == ["user", "reasoning", "assistant"] * 2


class Endless:
    """Streams words until it is cancelled; `on_word` is called with each."""

    name = "endless"

    def __init__(self) -> None:
        self.on_third_word = lambda: None
        self.was_cancelled = asyncio.Event()

    async def respond(self, request: ModelRequest) -> ModelResponse:
        raise NotImplementedError

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        try:
            for word in range(1_000_000):
                yield TextDelta(f"{word} ")
                await asyncio.sleep(0.01)
                if word == 3:
                    self.on_third_word()
        finally:
            self.was_cancelled.set()


async def test_a_cancelled_run_ends_as_cancelled() -> None:
    model = Endless()
    server = AgUiServer(Agent(model))
    model.on_third_word = lambda: server.cancellation.request("enough")
    async with serving(server):
        [run] = await run_client(server.url, {}, messages=[SAID])

    assert (run["error"], run["outcome"]) == (None, "cancelled")
    assert_same(run["messages"], server.reached)


async def test_a_page_that_leaves_ends_the_run() -> None:
    model = Endless()
    server = AgUiServer(Agent(model))
    async with serving(server):
        await run_client(server.url, {"abortAt": "TEXT_MESSAGE_CONTENT"}, messages=[SAID])
        async with asyncio.timeout(90):
            await model.was_cancelled.wait()

    assert server.left_early == 1


async def test_a_server_that_keeps_nothing_goes_on_with_what_the_page_has() -> None:
    turns = iter([[call("good", id="a", x=1), call("bad", id="b")], "First.", "Second."])
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        requests.append(request)
        return next(turns)

    agent = Agent(
        ScriptedModel(answer),
        tools=[MockTool.returning("good", {"x": 1}), MockTool.raising("bad", OSError("no"))],
        error_policy=ErrorPolicy.ignore_tool_errors(),
    )
    more = {"say": {"id": "u2", "role": "user", "content": "And then?"}}
    server, [first, second] = await seen(agent, {}, more, keeps_states=False)

    assert (first["error"], second["error"]) == (None, None)
    assert_same(second["messages"], server.reached)
    assert [m.role for m in requests[-1].messages] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
        Role.TOOL,
        Role.ASSISTANT,
        Role.USER,
    ]


async def test_a_call_that_a_page_left_in_the_middle_gets_a_result_in_its_place() -> None:
    released = asyncio.Event()

    async def slow() -> Iterator[str]:
        await released.wait()
        return iter(())

    turns = iter([call("slow", id="s"), "I was interrupted."])
    agent = Agent(ScriptedModel(lambda _: next(turns)), tools=[MockTool("slow", slow)])
    more = {"say": {"id": "u2", "role": "user", "content": "And then?"}}
    server, [left, done] = await seen(agent, {"abortAt": "TOOL_CALL_END"}, more, keeps_states=False)

    assert [m["role"] for m in left["messages"]] == ["user", "assistant"]
    assert done["error"] is None
    assert_same(done["messages"], server.reached)
    assert [m["role"] for m in done["messages"]] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
