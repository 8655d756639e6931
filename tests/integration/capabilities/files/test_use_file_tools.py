"""The file tools in a real agent: what the model is offered, what it sees, and that runs go on."""

import asyncio
from pathlib import Path

import pytest

from stepwell import Agent, AgentState, AgentStatus, ConfigurationError
from stepwell.capabilities.files import FilePolicy, UseFileTools
from stepwell.state import ToolOutcome
from stepwell.testing import ScriptedModel, call
from stepwell.tools import ToolEffect

NAMES = ["read_file", "write_file", "edit_file", "search_files", "list_dir"]


async def run(files: UseFileTools, *turns: object) -> AgentState:
    model = ScriptedModel([*turns, "done"])  # type: ignore[list-item]
    return await Agent(model, capabilities=[files]).run("Go.")


def results(state: AgentState) -> list[str]:
    return [e.text for step in state.steps for e in step.step.tool_executions]


async def test_a_file_is_read_edited_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def f():\n    return 1\n")
    state = await run(
        UseFileTools(tmp_path),
        call("search_files", pattern="**/*.py", contains="return"),
        call("read_file", path="app.py"),
        call("edit_file", path="app.py", old_string="return 1", new_string="return 2"),
        call("read_file", path="app.py", offset=1),
        call("write_file", path="docs/notes.md", content="# Notes\n"),
        call("list_dir"),
    )

    assert state.status is AgentStatus.COMPLETED
    assert results(state) == [
        "app.py:2:     return 1",
        "     1\tdef f():\n     2\t    return 1",
        "Replaced 1 occurrence in 'app.py', in line 2.",
        "     2\t    return 2",
        "Created 'docs/notes.md': 8 bytes, 1 line.",
        "[dir] docs\n[file] app.py",
    ]
    assert (tmp_path / "app.py").read_text() == "def f():\n    return 2\n"


async def test_failures_are_the_models_business_and_the_run_goes_on(tmp_path: Path) -> None:
    state = await run(
        UseFileTools(tmp_path),
        [
            call("read_file", path="missing"),
            call("read_file", path="../x"),
            call("write_file", path="/etc/x", content=""),
            call("edit_file", path="missing", old_string="a", new_string="b"),
            call("list_dir", path="missing"),
            call("search_files", pattern="../*"),
            call("read_file", path="a\0b"),
            call("read_file", path="\udcff"),
        ],
    )

    executions = state.steps[0].step.tool_executions
    assert state.status is AgentStatus.COMPLETED
    assert [execution.error for execution in executions] == [None] * 8
    assert {execution.outcome for execution in executions} == {ToolOutcome.FAILED}
    assert all(text.startswith("Error: ") for text in results(state))


async def test_calls_of_one_response_that_write_happen_in_order(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("0")
    state = await run(
        UseFileTools(tmp_path),
        [
            *(
                call("edit_file", path="a", old_string=str(n), new_string=str(n + 1))
                for n in range(9)
            ),
            call("read_file", path="a"),
            call("write_file", path="a", content="new"),
            call("read_file", path="a"),
        ],
    )

    assert results(state)[9] == "     1\t9"
    assert results(state)[11] == "     1\tnew"


async def test_the_tools_are_offered_with_their_effects(tmp_path: Path) -> None:
    model = ScriptedModel(["done"])
    files = UseFileTools(tmp_path)
    await Agent(model, capabilities=[files]).run("Go.")
    offered = model.requests[0].tools
    effects = {tool.schema.name: tool.effect for tool in files.tools}

    assert [schema.name for schema in offered] == NAMES
    assert all(schema.description for schema in offered)
    for schema in offered:
        properties = schema.parameters["properties"]
        assert "context" not in properties
        assert all(field["description"] for field in properties.values())
    assert effects == {
        "read_file": ToolEffect.PURE,
        "write_file": ToolEffect.IDEMPOTENT,
        "edit_file": ToolEffect.EXTERNAL,
        "search_files": ToolEffect.PURE,
        "list_dir": ToolEffect.PURE,
    }


def test_which_tools_there_are_can_be_chosen(tmp_path: Path) -> None:
    def names(**options: object) -> list[str]:
        return [tool.schema.name for tool in UseFileTools(tmp_path, **options).tools]  # type: ignore[arg-type]

    assert names(read_only=True) == ["read_file", "search_files", "list_dir"]
    assert names(tools=["list_dir", "write_file", "list_dir"]) == ["list_dir", "write_file"]
    assert names(tools=[]) == []
    with pytest.raises(ConfigurationError, match="no tool 'delete_file'"):
        names(tools=["delete_file"])
    with pytest.raises(ConfigurationError, match="no tool 'edit_file' when read_only is set"):
        names(tools=["edit_file"], read_only=True)
    with pytest.raises(ConfigurationError, match="tools wants a list"):
        names(tools="read_file")
    with pytest.raises(ConfigurationError, match="policy must be a FilePolicy"):
        names(policy={"max_lines": 3})
    with pytest.raises(ConfigurationError, match="is not an existing directory"):
        UseFileTools(tmp_path / "missing")


async def test_one_policy_reaches_every_tool(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("1\n2\n")
    state = await run(
        UseFileTools(
            tmp_path,
            policy=FilePolicy(
                max_lines=1, max_entries=1, max_results=1, max_write_bytes=1, max_edit_bytes=1
            ),
        ),
        [
            call("read_file", path="a.txt"),
            call("list_dir"),
            call("search_files", pattern="*.txt"),
            call("write_file", path="c.txt", content="too long"),
            call("edit_file", path="a.txt", old_string="1", new_string="2"),
        ],
    )
    read, listed, found, written, edited = results(state)

    assert "Continue at offset 1" in read
    assert "... and 1 more" in listed
    assert "... and 1 more" in found
    assert "at most 1" in written
    assert "is 1" in edited


async def test_slow_files_do_not_block_the_event_loop(tmp_path: Path) -> None:
    for directory in range(40):
        (tmp_path / str(directory)).mkdir()
        for number in range(50):
            (tmp_path / str(directory) / f"{number}.txt").write_text("a line of text\n" * 200)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.002)
            ticks += 1

    ticking = asyncio.create_task(tick())
    state = await run(
        UseFileTools(tmp_path), call("search_files", pattern="**", contains="not in there")
    )
    ticking.cancel()

    assert results(state) == ["No lines contain 'not in there' in '**'."]
    assert ticks > 5
