"""Specs from files in a real agent: their mistakes are logged, and they stay."""

import logging
from pathlib import Path

import pytest

from stepwell import Agent
from stepwell.capabilities.skills import SkillLibrary
from stepwell.capabilities.subagents import UseSubagents
from stepwell.errors import ConfigurationError
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import MockTool, ScriptedModel, call


def put(directory: Path, name: str, fields: str = "") -> None:
    directory.mkdir(exist_ok=True)
    text = f"---\nname: {name}\ndescription: Works.\n{fields}\n---\nYou work."
    (directory / f"{name}.md").write_text(text)


@pytest.mark.parametrize(
    ("fields", "tools"), [("", ["bash", "read_file", "spawn_subagent"]), ("tools: []", [])]
)
async def test_b182_a_file_without_a_tools_key_inherits_all_tools(
    tmp_path: Path, fields: str, tools: list[str]
):
    put(tmp_path, "one", fields)
    capability = UseSubagents(AgentRegistry().load_directory(tmp_path))
    model = ScriptedModel([call("spawn_subagent", subagent="one", prompt="Go."), "Ok.", "Done."])
    own = [MockTool.returning(name, "x") for name in ("bash", "read_file")]

    await Agent(model, tools=own, capabilities=[capability]).run("Go")

    assert [tool.name for tool in model.requests[1].tools] == tools


async def test_mistakes_in_files_are_logged_once_each_and_the_agent_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    put(tmp_path / "agents", "one", "tools: raed_file, WebFetch, bash")
    put(tmp_path / "agents", "two", "skills: nope")
    put(tmp_path / "agents", "three", "tools: bash")
    registry = AgentRegistry().load_directory(tmp_path / "agents")
    caplog.set_level(logging.WARNING, logger="stepwell.subagents")
    model = ScriptedModel([call("spawn_subagent", subagent="one", prompt="Go."), "Ok.", "Done."])
    capability = UseSubagents(registry, skills=SkillLibrary(tmp_path / "skills"))

    agent = Agent(model, tools=[MockTool.returning("bash", "x")], capabilities=[capability])
    state = await agent.run("Go")

    assert state.steps[0].step.tool_executions[0].text == "Ok."
    assert [tool.name for tool in model.requests[1].tools] == ["bash"]
    first, second = [record.message for record in caplog.records]
    assert f"{tmp_path / 'agents' / 'one.md'}: the agent 'one' names tools" in first
    assert "raed_file, WebFetch; tools: bash, spawn_subagent" in first
    assert "the agent 'two' names unknown skills: nope; skills: (none)" in second


def test_a_spec_in_code_that_replaces_one_of_a_file_is_checked_as_code(tmp_path: Path):
    put(tmp_path / "agents", "one", "tools: raed_file")
    registry = AgentRegistry().load_directory(tmp_path / "agents")
    assert registry.source_of("one") == str(tmp_path / "agents" / "one.md")
    spec = AgentSpec(name="one", description="d", system_prompt="p", tools=("raed_file",))
    registry = registry.register(spec)

    assert registry.source_of("one") is None
    with pytest.raises(ConfigurationError, match="raed_file"):
        Agent(ScriptedModel([]), capabilities=[UseSubagents(registry)])
