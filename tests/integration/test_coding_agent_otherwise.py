"""The coding agent when it goes otherwise: a person says no or changes a command, paths and tests
reach for what is outside, somebody cancels, the steps run out.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from examples import coding_agent as example
from stepwell import Agent, AgentStatus, Approval, Cancellation, StopReason, ToolCall
from stepwell.capabilities.tasks import tasks_of
from stepwell.events import ToolCallProgressed
from stepwell.messages import Role
from stepwell.state import ToolOutcome
from stepwell.testing import call
from tests.integration.sandbox.watching import Marker
from tests.integration.shop_repository import (
    UNITTEST,
    Person,
    agent_saying,
    bash_says,
    changed_files,
    executions,
    shop_in,
    to_the_end,
)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The repository, with a secret beside it."""
    (tmp_path / "secret.txt").write_text("hush-hush", encoding="utf-8")
    return shop_in(tmp_path)


@pytest.fixture
async def port() -> AsyncIterator[tuple[int, list[str]]]:
    """Where somebody listens on this machine, and notes who came."""
    came: list[str] = []

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(str(writer.get_extra_info("peername")))
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], came


async def test_a_denied_command_does_not_run_and_the_model_is_told(shop: Path) -> None:
    agent = agent_saying(shop, call("bash", command="touch ran; rm prices.py"))
    person = Person(Approval.denied("not on a Friday"))
    state = await to_the_end(agent, "Go", person)

    assert state.status is AgentStatus.COMPLETED
    assert [e.outcome for e in executions(state, "bash")][-1] is ToolOutcome.BLOCKED
    (told,) = [m.text for m in state.messages if m.role is Role.TOOL]
    assert "a person denied this call: not on a Friday" in told
    assert changed_files(shop) == {}


async def test_an_edited_command_runs_in_place_of_the_models(shop: Path) -> None:
    agent = agent_saying(shop, call("bash", command="rm prices.py"))
    person = Person(Approval.edited({"command": "ls prices.py; touch looked.txt"}))
    state = await to_the_end(agent, "Go", person)

    (told,) = [m.text for m in state.messages if m.role is Role.TOOL]
    assert told.startswith('(A person changed the arguments to {"command":"ls prices.py')
    assert told.endswith("\nprices.py")
    assert changed_files(shop) == {"looked.txt": "??"}


async def test_an_approval_is_for_one_call_only(shop: Path) -> None:
    same = [call("bash", command="date >> dates.txt") for _ in range(2)]
    person = Person()
    state = await to_the_end(agent_saying(shop, *same), "Go", person)

    assert [p.tool_name for p in person.asked] == ["bash", "bash"]
    assert len({p.call_id for p in person.asked}) == 2
    assert len((shop / "dates.txt").read_text(encoding="utf-8").splitlines()) == 2
    assert state.status is AgentStatus.COMPLETED


@pytest.mark.parametrize(
    "asked",
    [
        call("read_file", path="../secret.txt"),
        call("read_file", path="{outside}/secret.txt"),
        call("read_file", path="link.txt"),
        call("write_file", path="../secret.txt", content="mine"),
        call("write_file", path="../shop2/new.txt", content="mine"),
        call("edit_file", path="../secret.txt", old_string="hush", new_string="loud"),
        call("list_dir", path=".."),
        call("search_files", pattern="../*"),
    ],
    ids=lambda asked: f"{asked.name}-{asked.arguments.get('path', 'pattern')}",
)
async def test_a_path_outside_of_the_repository_is_refused(shop: Path, asked: ToolCall) -> None:
    (shop / "link.txt").symlink_to("../secret.txt")
    outside = {n: str(v).format(outside=shop.parent) for n, v in asked.arguments.items()}
    before = sorted(os.listdir(shop.parent))
    state = await agent_saying(shop, replace(asked, arguments=outside)).run("Go")

    (execution,) = executions(state, asked.name)
    assert execution.text.startswith("Error: ")
    assert "hush" not in repr(state).replace("'hush'", "")
    assert (shop.parent / "secret.txt").read_text(encoding="utf-8") == "hush-hush"
    assert sorted(os.listdir(shop.parent)) == before
    assert state.status is AgentStatus.COMPLETED
    assert not state.had_errors


async def test_the_tests_cannot_read_a_secret_outside(shop: Path) -> None:
    stealing = "import unittest\n\nprint(open('../secret.txt').read())\n"
    (shop / "test_stealing.py").write_text(stealing, encoding="utf-8")
    said = await bash_says(shop, UNITTEST)

    assert said.startswith("Error: exit code 1")
    assert "Error: [Errno" in said
    assert "test_stealing" in said
    assert "hush" not in said
    # The same with what is inside is read, so it is the place that matters.
    stealing = stealing.replace("../secret.txt", "prices.py")
    (shop / "test_stealing.py").write_text(stealing, encoding="utf-8")
    assert "Prices of a small shop" in await bash_says(shop, UNITTEST)


async def test_the_tests_cannot_reach_the_network(shop: Path, port: tuple[int, list[str]]) -> None:
    number, came = port
    calling = f"import socket\nsocket.create_connection(('127.0.0.1', {number}), 5)\n"
    (shop / "test_calling.py").write_text(calling, encoding="utf-8")
    said = await bash_says(shop, UNITTEST)

    assert said.startswith("Error: exit code 1")
    assert "create_connection" in said
    assert came == []


async def test_a_cancellation_while_bash_runs_leaves_no_process(shop: Path) -> None:
    marker, cancellation = Marker(), Cancellation()
    command = f"echo begun; setsid nohup {marker.sleep} & {marker.sleep}"
    agent = agent_saying(shop, call("bash", command=command))
    waiting = await agent.run("Go")
    seen: list[str] = []

    def cancel(_: ToolCallProgressed) -> None:
        seen.extend(marker.alive())
        cancellation.request("enough")

    agent.on_event(ToolCallProgressed, cancel)
    answered = waiting.with_answer(waiting.pending[0], True)
    state = await agent.run(answered, cancellation=cancellation)

    assert state.status is AgentStatus.CANCELLED
    assert executions(state, "bash")[-1].outcome is ToolOutcome.CANCELLED
    assert seen
    assert marker.alive() == []


async def test_the_limit_of_steps_ends_the_work_in_the_middle(shop: Path) -> None:
    agent = example.coding_agent(example.script(), shop)
    agent = Agent.from_plan(replace(agent.plan, max_steps=5))
    state = await to_the_end(agent, example.TASK, Person())

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.STEPS_LIMIT
    assert "5 of 5 steps used" in state.explain()
    assert state.step_count == 5
    assert changed_files(shop) == {"prices.py": "M"}  # edited, not yet tested
    assert [str(task.status) for task in tasks_of(state)] == ["in_progress", "pending", "pending"]
