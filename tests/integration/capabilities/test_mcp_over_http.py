"""Tools of a real MCP server over streamable HTTP, called by an agent."""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, AgentState, Cancellation, ConfigurationError, ErrorPolicy, ToolCall
from stepwell.capabilities.mcp import McpConnectionError, McpServer, UseMcp
from stepwell.events import ToolCallProgressed, ToolCallStarted
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call
from stepwell.tools import ToolEffect
from tests.servers.mcp_server import http_server

CANARY = "canary-7f3a9c"
IGNORE = ErrorPolicy.ignore_tool_errors()
# By when the server must have begun what it is asked; a busy machine may need the longer ones.
PATIENCE_SECONDS = (0.4, 2.0, 10.0, 40.0)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http_server() as (address, _):
        yield address


async def executed(
    server: McpServer, *turns: ToolCall | Sequence[ToolCall], **settings: Any
) -> list[ToolExecution]:
    """What came of these calls, made by an agent."""
    model = ScriptedModel([*turns, "Done."])
    agent = Agent(
        model,
        capabilities=[UseMcp(server, **settings)],
        error_policy=IGNORE,
        max_tokens=None,
    )
    state = await agent.run("Go")
    assert state.final_response == "Done."
    return [e for taken in state.steps for e in taken.step.tool_executions]


async def one(server: McpServer, asked: ToolCall, **settings: Any) -> ToolExecution:
    [execution] = await executed(server, asked, **settings)
    return execution


def schemas(server: McpServer, **settings: Any) -> dict[str, Any]:
    model = ScriptedModel(["Done."])
    plan = Agent(model, capabilities=[UseMcp(server, **settings)]).plan
    return {tool.schema.name: tool for tool in plan.tools}  # type: ignore[union-attr]


async def test_an_agent_calls_tools_and_reads_their_results(url: str) -> None:
    async with McpServer.http(url) as server:
        model = ScriptedModel([call("add", a=2, b=3, id="c1"), "It is 5."])
        state = await Agent(model, capabilities=[UseMcp(server)]).run("2 + 3?")

    assert state.final_response == "It is 5."
    assert model.requests[1].messages[-1].text == "5"
    told = {tool.name: tool for tool in model.requests[0].tools}
    assert told["add"].description == "Add two numbers."
    assert told["add"].parameters["required"] == ["a", "b"]
    assert {"odd_name_with_spaces", "echo"} <= set(told)


async def test_a_schema_with_definitions_is_passed_on_as_it_is(url: str) -> None:
    async with McpServer.http(url) as server:
        [definition] = [tool for tool in server.tools if tool.name == "place"]
        order = {"lines": [{"item": "tea", "count": 2}]}
        execution = await one(server, call("place", order=order, id="c1"))
        [wrong] = await executed(server, call("place", order={"lines": [{}]}, id="c2"))

    assert set(definition.parameters["$defs"]) == {"Line", "Order"}
    assert execution.succeeded
    assert '"number": 7' in execution.text
    assert execution.text.count("tea") == 1
    assert wrong.outcome is ToolOutcome.FAILED
    assert "Field required" in wrong.text


async def test_failures_of_tools_and_of_the_protocol_are_told_to_the_model(url: str) -> None:
    async with McpServer.http(url) as server:
        failed, refused, missing = await executed(
            server, call("fail", why="x", id="1"), call("refuse", id="2"), call("add", a=1, id="3")
        )

    assert (failed.outcome, refused.outcome) == (ToolOutcome.FAILED, ToolOutcome.FAILED)
    assert failed.text.startswith("Error: ")
    assert refused.text == "Error: refused by the server"
    assert missing.outcome is ToolOutcome.INVALID
    assert "missing required arguments: b" in missing.text


async def test_all_kinds_of_content_are_told(url: str) -> None:
    async with McpServer.http(url) as server:
        picture, rows = await executed(server, call("picture", id="1"), call("rows", id="2"))

    assert picture.text.splitlines() == [
        "Here:",
        "[image, image/png, 9 bytes: not shown]",
        "[memo://1]",
        "Remember.",
        "[link to more, memo://2]",
    ]
    assert rows.text == 'two rows\n{"rows":[1,2]}'


async def test_large_results_are_cut_and_all_of_unicode_comes_through(url: str) -> None:
    words = "grüße 你好 🦉 \u2028 \x00"
    async with McpServer.http(url) as server:
        large, said, odd = await executed(
            server,
            call("repeat", text="abcdefgh", times=500_000, id="1"),
            call("echo", text=words, id="2"),
            call("odd_name_with_spaces", id="3"),
            max_result_chars=1000,
        )

    assert large.text.startswith("abcdefgh" * 125)
    assert large.text.endswith("... [3,999,000 more characters]")
    assert said.text == words
    assert odd.text == "odd"


async def test_progress_is_told_to_listeners(url: str) -> None:
    async with McpServer.http(url) as server:
        model = ScriptedModel([call("work", steps=3, pause=0.02, id="c1"), "Done."])
        agent = Agent(model, capabilities=[UseMcp(server)])
        recorder = EventRecorder()
        agent.wiretap(recorder)
        state = await agent.run("Go")

    told = [e for e in recorder.events if isinstance(e, ToolCallProgressed)]
    assert state.final_response == "Done."
    assert [(e.message, round(e.fraction or 0, 2)) for e in told][:2] == [
        ("step 1", 0.33),
        ("step 2", 0.67),
    ]
    assert {e.call_id for e in told} == {"c1"}


def words_in(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def noted(path: Path, word: str) -> bool:
    """Whether the server wrote that word, within five seconds."""
    for _ in range(250):
        if word in words_in(path):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_timeout_cancels_the_call_at_the_server_too(url: str, tmp_path: Path) -> None:
    note = tmp_path / "note"
    async with McpServer.http(url) as server:
        for seconds in PATIENCE_SECONDS:
            asleep = call("sleep", seconds=60, note=str(note), id="1")
            slow = await one(server, asleep, timeout=seconds)
            assert slow.outcome is ToolOutcome.TIMED_OUT
            assert slow.duration_seconds < seconds + 10
            if "began" in words_in(note):
                break
        assert await noted(note, "cancelled")
        quick = await one(server, call("add", a=1, b=1, id="2"))

    assert quick.text == "2"


async def test_a_cancelled_run_cancels_the_call_at_the_server_too(url: str, tmp_path: Path) -> None:
    note, cancellation = tmp_path / "note", Cancellation()

    async def cancel_when_begun() -> None:
        assert await noted(note, "began")
        cancellation.request("enough")

    async with McpServer.http(url) as server:
        model = ScriptedModel([call("sleep", seconds=30, note=str(note), id="1")])
        agent = Agent(model, capabilities=[UseMcp(server, timeout=None)])
        state, _ = await asyncio.gather(
            agent.run("Go", cancellation=cancellation), cancel_when_begun()
        )
        assert await noted(note, "cancelled")

    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.CANCELLED


async def test_calls_of_one_response_run_beside_each_other(url: str, tmp_path: Path) -> None:
    beside_each_other = ["began"] * 4 + ["slept"] * 4
    words: list[str] = []
    async with McpServer.http(url) as server:
        for seconds in PATIENCE_SECONDS:
            note = tmp_path / f"{seconds}"
            asked = [call("sleep", seconds=seconds, note=str(note), id=f"c{n}") for n in range(4)]
            slept = await executed(server, asked)
            assert all(execution.text.startswith("slept") for execution in slept)
            words = words_in(note)
            if words == beside_each_other:
                break
    assert words == beside_each_other


async def test_tools_are_chosen_named_and_rated(url: str) -> None:
    async with McpServer.http(url) as server:
        some = schemas(server, include=["add", "echo", "fail"], exclude=["fail"], prefix="x_")
        rated = schemas(server, effects={"fail": "idempotent", "add": "external"}, timeout=9)
        all_pure = schemas(server, effects="pure", timeout=None)
        for wrong in ({"include": ["ad"]}, {"exclude": ["ad"]}, {"effects": {"ad": "pure"}}):
            with pytest.raises(
                ConfigurationError, match=r"does not have: 'ad'; its tools: add, echo"
            ):
                schemas(server, **wrong)

    assert list(some) == ["x_add", "x_echo"]
    assert (some["x_add"].effect, some["x_add"].timeout) == (ToolEffect.PURE, 60.0)
    assert some["x_echo"].effect is ToolEffect.IDEMPOTENT
    assert rated["fail"].effect is ToolEffect.IDEMPOTENT
    assert rated["add"].effect is ToolEffect.EXTERNAL
    assert (rated["work"].effect, rated["work"].timeout) == (ToolEffect.EXTERNAL, 9.0)
    assert {tool.effect for tool in all_pure.values()} == {ToolEffect.PURE}
    assert {tool.timeout for tool in all_pure.values()} == {None}


async def test_two_servers_need_names_of_their_own(url: str) -> None:
    async with McpServer.http(url, name="one") as one, McpServer.http(url, name="two") as two:
        with pytest.raises(ConfigurationError, match=r"'one' and MCP server 'two' both have"):
            Agent(ScriptedModel([]), capabilities=[UseMcp(one), UseMcp(two)])
        for capabilities in ([UseMcp(one, include=["add"])],):
            with pytest.raises(ConfigurationError, match=r"a tool 'add'; give one a prefix"):
                Agent(
                    ScriptedModel([]),
                    capabilities=capabilities,
                    tools=[MockTool.returning("add", 1)],
                )
        model = ScriptedModel(
            [[call("a_add", a=1, b=1, id="1"), call("b_add", a=2, b=2, id="2")], "Done."]
        )
        both = [UseMcp(one, prefix="a_"), UseMcp(two, prefix="b_")]
        state = await Agent(model, capabilities=both).run("Go")

    assert [e.text for e in state.steps[0].step.tool_executions] == ["2", "4"]


async def test_an_agent_in_another_thread_may_call_as_well(url: str) -> None:
    async with McpServer.http(url) as server:
        model = ScriptedModel([call("work", steps=1, id="c1"), "Done."])
        agent = Agent(model, capabilities=[UseMcp(server)])
        recorder = EventRecorder()
        agent.wiretap(recorder)
        state: AgentState = await asyncio.to_thread(agent.run_sync, "Go")

    assert state.steps[0].step.tool_executions[0].text == "worked"
    assert any(isinstance(event, ToolCallProgressed) for event in recorder.events)


async def test_leaving_the_block_leaves_no_task_and_later_calls_fail(url: str) -> None:
    async with McpServer.http(url, name="example") as server:
        agent = Agent(
            ScriptedModel([call("add", a=1, b=1), "Done."]), capabilities=[UseMcp(server)]
        )
        with pytest.raises(ConfigurationError, match="is connected already"):
            async with server:
                pass
    assert asyncio.all_tasks() == {asyncio.current_task()}
    state = await agent.run("Go")

    [execution] = state.steps[0].step.tool_executions
    assert execution.outcome is ToolOutcome.FAILED
    assert "MCP server 'example' is not connected" in execution.text

    async with server:
        assert (await server.call("add", {"a": 1, "b": 1})).structured_content == {"result": 2}


async def test_a_call_in_flight_fails_when_the_block_is_left(url: str) -> None:
    async with McpServer.http(url) as server:
        waiting = asyncio.create_task(server.call("sleep", {"seconds": 30}))
        await asyncio.sleep(0.2)
    with pytest.raises(McpConnectionError, match="was closed"):
        await waiting


async def test_a_server_that_is_killed_in_mid_call_is_reported_and_connected_to_again() -> None:
    with http_server() as (url, pid):
        async with McpServer.http(url, name="example") as server:
            agent = Agent(
                ScriptedModel([call("sleep", seconds=600, id="1"), "Done."]),
                capabilities=[UseMcp(server)],
            )
            agent.on_event(
                ToolCallStarted,
                lambda _: asyncio.get_running_loop().call_later(0.3, os.kill, pid, signal.SIGKILL),
            )
            state = await agent.run("Go")
            gone = await one(server, call("add", a=1, b=1, id="2"))
            with http_server(int(url.rpartition(":")[2].partition("/")[0])):
                again = await one(server, call("add", a=1, b=1, id="3"))

    [killed] = state.steps[0].step.tool_executions
    assert killed.outcome is ToolOutcome.FAILED
    assert "MCP server 'example' failed: " in killed.text
    assert "the next call reconnects" in killed.text
    assert killed.duration_seconds < 300
    assert "can't connect to MCP server" in gone.text
    assert again.text == "2"


async def test_an_address_where_nothing_listens_is_named_without_its_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = McpServer.http(
        f"http://me:{CANARY}@127.0.0.1:9/mcp", headers={"Authorization": f"Bearer {CANARY}"}
    )
    with caplog.at_level("DEBUG"), pytest.raises(McpConnectionError) as raised:
        async with server:
            pass

    assert "can't connect to MCP server" in str(raised.value)
    assert CANARY not in str(raised.value)
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("stepwell")]
    assert CANARY not in "".join(ours)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_address_that_speaks_no_mcp_is_reported(url: str) -> None:
    with pytest.raises(McpConnectionError, match="can't connect to MCP server"):
        async with McpServer.http(url.replace("/mcp", "/nothing")):
            pass
    assert asyncio.all_tasks() == {asyncio.current_task()}
