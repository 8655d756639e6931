"""MCP servers as processes of ours: what they see, how they end, and that nothing is left over."""

import asyncio
import logging
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, ConfigurationError, ErrorPolicy, ToolCall
from stepwell.capabilities.mcp import McpCallError, McpConnectionError, McpServer, UseMcp, process
from stepwell.events import ToolCallStarted
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import ScriptedModel, call
from tests.servers.mcp_server import ARGS, COMMAND, ROOT

CANARY = "canary-7f3a9c"


def started(*mode: str, **settings: Any) -> McpServer:
    return McpServer.stdio(COMMAND, [*ARGS, *mode], cwd=ROOT, **{"name": "example", **settings})


def plain(*mode: str, **settings: Any) -> McpServer:
    """One that starts at once, for what has nothing to do with the SDK on its side."""
    args = ["-m", "tests.servers.plain_mcp_server", *mode]
    return McpServer.stdio(COMMAND, args, cwd=ROOT, **{"name": "example", **settings})


async def said(server: McpServer, tool: str, /, **arguments: Any) -> str:
    result = await server.call(tool, arguments)
    return result.content[0].text  # type: ignore[union-attr]


async def executed(server: McpServer, *turns: ToolCall) -> list[ToolExecution]:
    agent = Agent(
        ScriptedModel([*turns, "Done."]),
        capabilities=[UseMcp(server)],
        error_policy=ErrorPolicy.ignore_tool_errors(),
        max_tokens=None,
    )
    state = await agent.run("Go")
    assert state.final_response == "Done."
    return [e for taken in state.steps for e in taken.step.tool_executions]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


async def is_gone(pid: int) -> bool:
    for _ in range(100):
        if not is_alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


def only_this_task() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_server_sees_only_what_it_is_given_and_ends_with_its_block(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "CANARY"):
        monkeypatch.setenv(name, CANARY)
    asked = ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "CANARY", "GIVEN", "PATH", "HOME"]
    with caplog.at_level(logging.DEBUG):
        async with started(env={"GIVEN": f"given-{CANARY}"}) as server:
            pid, seen = await executed(
                server, call("process_id", id="1"), call("read_environment", names=asked, id="2")
            )
            assert is_alive(int(pid.text))

    assert set(seen.text.split()) == {"GIVEN", "PATH", "HOME"}
    assert CANARY not in caplog.text
    assert await is_gone(int(pid.text))
    assert only_this_task()


async def test_an_error_in_the_block_ends_the_server_and_what_it_started() -> None:
    pids: list[int] = []

    async def use() -> None:
        async with plain() as server:
            pids.extend([int(await said(server, t)) for t in ("process_id", "start_child")])
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await use()
    assert len(pids) == 2
    assert all([await is_gone(pid) for pid in pids])
    assert only_this_task()


async def test_a_cancelled_block_ends_the_server() -> None:
    pids: list[int] = []
    is_used = asyncio.Event()

    async def use() -> None:
        async with plain() as server:
            pids.append(int(await said(server, "process_id")))
            is_used.set()
            await server.call("sleep", {"seconds": 60})

    using = asyncio.create_task(use())
    await is_used.wait()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using

    assert await is_gone(pids[0])
    assert only_this_task()


async def test_a_server_that_will_not_leave_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "EXIT_SECONDS", 0.2)
    async with plain("stubborn") as server:
        pid = int(await said(server, "process_id"))

    assert await is_gone(pid)
    assert only_this_task()


async def test_a_server_that_is_killed_in_mid_call_is_started_again_by_the_next() -> None:
    async with plain() as server:
        pid = int(await said(server, "process_id"))
        agent = Agent(
            ScriptedModel([call("sleep", seconds=600, id="1"), "Done."]),
            capabilities=[UseMcp(server)],
        )
        loop = asyncio.get_running_loop()
        agent.on_event(
            ToolCallStarted, lambda _: loop.call_later(0.2, os.kill, pid, signal.SIGKILL)
        )
        state = await agent.run("Go")
        added, left, again = await executed(
            server,
            call("add", a=1, b=1, id="2"),
            call("leave", code=4, words="secret words", id="3"),
            call("process_id", id="4"),
        )

    [killed] = state.steps[0].step.tool_executions
    assert killed.outcome is ToolOutcome.FAILED
    assert "'example' was killed by SIGKILL. The call may still take effect" in killed.text
    assert killed.duration_seconds < 300
    assert added.text == "2"
    assert "ended with code 4" in left.text
    assert "secret words" not in left.text
    assert int(again.text) != pid
    assert await is_gone(int(again.text))
    assert only_this_task()


async def test_calls_that_wait_when_a_server_dies_all_fail_and_one_starts_it_again() -> None:
    async with plain() as server:
        waiting = [asyncio.create_task(server.call("sleep", {"seconds": 60})) for _ in range(3)]
        dying = asyncio.create_task(server.call("die", {}))
        ended = await asyncio.gather(*waiting, dying, return_exceptions=True)
        pids = await asyncio.gather(*(said(server, "process_id") for _ in range(4)))

    assert [type(error) for error in ended] == [McpConnectionError] * 4
    assert len(set(pids)) == 1


async def test_garbage_on_standard_output_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="stepwell"):
        async with started("garbage") as server:
            babbled, added = await executed(
                server, call("babble", id="1"), call("add", a=1, b=1, id="2")
            )

    assert (babbled.text, added.text) == ("babbled", "2")
    assert caplog.text.count("that is not a message; it is skipped") == 3
    assert "wrote 5 lines to stdout that are not messages" in caplog.text
    assert "Welcome" not in caplog.text


async def test_a_flood_of_garbage_is_counted_and_not_logged_line_by_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="stepwell"):
        async with plain() as server:
            for lines in (3, 20_000):
                assert await said(server, "babble", lines=lines) == "babbled"
            assert len(caplog.records) == 3

    assert "wrote 20003 lines" in caplog.text
    assert len(caplog.records) == 4


async def test_a_tool_list_that_makes_no_sense_is_told_and_not_how_the_server_was_ended() -> None:
    with pytest.raises(McpConnectionError) as raised:
        async with plain("bad-schema"):
            pass

    assert "it failed: ValidationError: " in str(raised.value)
    assert "inputSchema.required" in str(raised.value)
    assert "ended with code" not in str(raised.value)
    assert only_this_task()


async def test_a_tool_without_a_name_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="stepwell"):
        async with plain("nameless") as server:
            [added] = await executed(server, call("add", a=1, b=1, id="1"))

    assert added.text == "2"
    assert "" not in [tool.name for tool in server.tools]
    assert "lists a tool without a name; it is skipped" in caplog.text


async def test_a_large_message_and_one_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_MESSAGE_BYTES", 4 * 1024 * 1024)
    monkeypatch.setattr(process, "EXIT_SECONDS", 0.3)
    async with plain() as server:
        fits = await said(server, "repeat", text="é", times=500_000)
        with pytest.raises(McpConnectionError, match="sent a message of more than 4194304 bytes"):
            await server.call("repeat", {"text": "é", "times": 5_000_000})
        after = await said(server, "add", a=1, b=1)

    assert len(fits) == 500_000
    assert after == "2"


async def test_a_server_that_never_answers_is_given_up() -> None:
    told = ""
    for seconds in (0.5, 2.0, 10.0):  # a busy machine may need longer to start it
        with pytest.raises(McpConnectionError) as raised:
            async with plain("mute", connect_timeout=seconds):
                pass
        told = str(raised.value)
        assert f"it did not answer within {seconds:g} seconds" in told
        assert only_this_task()
        if "still thinking" in told:
            break
    assert re.search("seconds; .* still thinking", told)


async def test_a_server_that_ends_at_once_is_quoted_without_its_secrets() -> None:
    with pytest.raises(McpConnectionError) as raised:
        async with plain("broken", env={"TOKEN": CANARY}):
            pass

    assert "it ended with code 3; its last output on stderr: no config: [secret]" in str(
        raised.value
    )
    assert only_this_task()


async def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(McpConnectionError, match=r"FileNotFoundError: .*no-such-program"):
        async with McpServer.stdio("no-such-program"):
            pass
    assert only_this_task()


async def test_giving_up_while_it_connects_leaves_nothing_behind() -> None:
    async def connect() -> None:
        async with plain("mute"):
            pass

    connecting = asyncio.create_task(connect())
    await asyncio.sleep(0.5)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert only_this_task()


async def test_pages_of_tools_are_read_and_broken_promises_reported() -> None:
    async with started("pages", "3") as server:
        assert [tool.name for tool in server.tools] == [f"tool_{n}" for n in range(30)]
        empty, broken, unknown = await executed(
            server,
            call("tool_22", id="1"),
            call("tool_21", id="2"),
            call("tool_3", colour="red", id="3"),
        )
        with pytest.raises(McpCallError, match="Invalid structured content"):
            await server.call("tool_11", {})

    assert empty.text == "(The tool returned no output.)"
    assert "invalid answer from MCP server 'example'" in broken.text
    assert "'x' is a required property" in broken.text
    assert "unknown arguments: colour. It takes: nothing." in unknown.text


async def test_more_tools_than_a_model_can_choose_from_are_refused() -> None:
    async with started("pages", "120") as server:
        assert len(server.tools) == 1000
        with pytest.raises(ConfigurationError, match=r"has 1000 tools.* include=\[...\]"):
            Agent(ScriptedModel([]), capabilities=[UseMcp(server)])
        chosen = UseMcp(server, include=["tool_139"])
        assert Agent(ScriptedModel([]), capabilities=[chosen]).plan.tools


async def test_a_server_of_an_older_protocol_is_understood() -> None:
    async with started("old") as server:
        [greeted] = await executed(server, call("greet", id="1"))

    assert greeted.text == "Good day."
    assert only_this_task()
