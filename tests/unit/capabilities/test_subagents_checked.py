"""Mistakes in specs are told when the agent is built, and the model is shown who there is."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell import Agent
from stepwell.capabilities.subagents import SubagentPolicy, UseSubagents
from stepwell.capabilities.subagents.spawn import MAX_CHOICES, SpawnSubagentTool
from stepwell.capabilities.user_input import UseUserInput
from stepwell.errors import ConfigurationError
from stepwell.events import EventBus
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import MockTool, ScriptedModel, call

LOGGER = "stepwell.subagents"


class Library:
    """Skills that can be looked up without reading them."""

    names = ("git", "pdf")

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def get(self, name: str) -> Any:
        return SimpleNamespace(body=f"About {name}.")


def spec(name: str = "worker", **parts: Any) -> AgentSpec:
    return AgentSpec(name=name, description="Works.", system_prompt="You work.", **parts)


def agent_of(*specs: AgentSpec, skills: Any = None, **parts: Any) -> Agent:
    tools = [MockTool.returning(name, "x") for name in ("bash", "read_file")]
    subagents = UseSubagents(AgentRegistry(specs), skills=skills, **parts)
    return Agent(ScriptedModel([]), tools=tools, capabilities=[subagents, UseUserInput()])


def test_a_misspelt_tool_is_told_with_the_spec_and_the_known_tools() -> None:
    with pytest.raises(ConfigurationError) as told:
        agent_of(spec("fine", tools=("bash",)), spec(tools=("raed_file", "bash")))

    assert str(told.value) == (
        "the agent 'worker' names tools that its parent does not have: raed_file; tools: bash, "
        "read_file, spawn_subagent, user_input"
    )


@pytest.mark.parametrize(
    "tools",
    [
        None,
        (),
        ("bash", "user_input", "spawn_subagent"),
        ("Read", "Bash", "AskUserQuestion", "Task"),
        ("read_*",),
    ],
)
def test_tools_of_the_parent_are_known_also_by_their_foreign_names(
    caplog: pytest.LogCaptureFixture, tools: tuple[str, ...] | None
) -> None:
    agent_of(spec(tools=tools), policy=SubagentPolicy(denied_tools=("bash",)))
    assert caplog.text == ""


@pytest.mark.parametrize("entry", ["Write", "mcp_*", "Bash(git:*)"])
def test_an_entry_that_gives_nothing_here_is_logged(
    caplog: pytest.LogCaptureFixture, entry: str
) -> None:
    agent = agent_of(spec(tools=(entry, "bash")))
    agent.with_events(EventBus())  # It is assembled anew, and nothing is said twice.

    (record,) = caplog.records
    assert (record.name, record.levelno) == (LOGGER, logging.WARNING)
    assert f"'worker' names tools that its parent does not have: {entry};" in record.message


def test_a_spec_that_is_not_trusted_can_not_keep_an_agent_from_being_built(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent_of(spec(tools=("root_shell",), trusted=False))
    assert "root_shell" in caplog.text


def test_an_unknown_skill_is_told_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigurationError,
        match="the agent 'worker' names unknown skills: gti; skills: git, pdf",
    ):
        agent_of(spec(skills=("git", "gti")), skills=Library())
    agent_of(spec(skills=("git",)), skills=Library())


def test_skills_without_a_library_are_told() -> None:
    with pytest.raises(ConfigurationError, match=r"'worker' needs the skills git.*skills=library"):
        agent_of(spec(skills=("git",)))


def test_a_source_that_can_only_get_skills_is_not_asked_for_them() -> None:
    asked: list[str] = []
    agent_of(spec(skills=("git",)), skills=SimpleNamespace(get=asked.append))
    assert asked == []


# What the model is shown


def test_without_any_agent_there_is_no_tool_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedModel(["Done."])
    agent = Agent(model, capabilities=[UseSubagents(AgentRegistry())])

    assert agent.run_sync("Go").final_response == "Done."
    assert model.requests[0].tools == ()
    (record,) = caplog.records
    assert (record.name, record.levelno) == (LOGGER, logging.WARNING)
    assert "no agent is registered, so the tool spawn_subagent is not added" in record.message


def test_the_names_are_choices_and_another_one_is_still_a_friendly_failure() -> None:
    spawn = call("spawn_subagent", subagent="judge", prompt="Judge it.")
    model = ScriptedModel([spawn, "Done."])
    registry = AgentRegistry([spec("writer"), spec("critic")])
    state = Agent(model, capabilities=[UseSubagents(registry)]).run_sync("Go")

    shown = model.requests[0].tools[0].parameters["properties"]["subagent"]
    assert (shown["type"], shown["enum"]) == ("string", ["critic", "writer"])
    said = state.steps[0].step.tool_executions[0]
    assert said.text == "Error: there is no subagent 'judge'; available: critic, writer"
    assert not state.had_errors


@pytest.mark.parametrize("count", [0, MAX_CHOICES + 1])
def test_no_choices_and_more_than_providers_take_are_not_listed_as_such(count: int) -> None:
    registry = AgentRegistry([spec(f"a{number}") for number in range(count)])
    tool = SpawnSubagentTool(registry, SubagentPolicy())
    assert "enum" not in tool.schema.parameters["properties"]["subagent"]
