"""Agents by name, each prepared once; the hash of a definition says whether it changed."""

from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.agent import Agent, AgentDefinition
from stepwell.agent.definition import AgentDescriptor
from stepwell.criteria import ErrorPolicy
from stepwell.errors import AgentNotFoundError, ConfigurationError
from stepwell.models import ModelSettings
from stepwell.sessions.directory import AgentDirectory
from stepwell.testing import MockTool, ScriptedModel
from stepwell.tools import FunctionTool


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def agent(**changes: Any) -> Agent:
    given: dict[str, Any] = {"tools": [add], "system_prompt": "You count."}
    return Agent(ScriptedModel(["One."]), **{**given, **changes})


def hash_of(made: Agent) -> str:
    return AgentDirectory({"x": made}).get("x").definition_hash


class Greeter(AgentDefinition):
    """An agent that says its own name."""

    def descriptor(self) -> AgentDescriptor:
        return AgentDescriptor(name="greeter", description="Says hello.")

    def build_agent(self) -> Agent:
        return agent()


def test_agents_are_found_by_name_and_the_first_is_the_default() -> None:
    agents = AgentDirectory({"helper": agent(), "greeter": Greeter()})
    assert agents.names == ("helper", "greeter")
    assert agents.default == "helper"
    assert agents.get("greeter").description == "Says hello."
    assert agents.get("helper").config["tools"] == ["add"]


def test_definitions_name_themselves() -> None:
    assert AgentDirectory([Greeter()]).names == ("greeter",)


class Example(Greeter):
    """An agent with prompts to try."""

    def __init__(self, examples: Any) -> None:
        self._examples = examples

    def descriptor(self) -> AgentDescriptor:
        return replace(super().descriptor(), examples=self._examples)


def test_an_agent_brings_its_examples() -> None:
    assert AgentDirectory([Example(("Greet Ada",))]).get("greeter").examples == ("Greet Ada",)
    assert AgentDirectory({"helper": agent()}).get("helper").examples == ()


@pytest.mark.parametrize("examples", ["Greet Ada", [1], (None,)])
def test_examples_that_are_no_texts_are_refused(examples: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'greeter'.*examples.*tuple of texts"):
        AgentDirectory([Example(examples)])


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(AgentNotFoundError, match="known: helper"):
        AgentDirectory({"helper": agent()}).get("other")


@pytest.mark.parametrize(
    "given",
    [{}, [], {"": 1}, {"a b": None}, {"x" * 101: None}, {"x": 7}, {"x": Greeter}, [3], "x", 5],
)
def test_what_is_no_list_of_agents_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError):
        AgentDirectory(given)


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two agents are called 'greeter'"):
        AgentDirectory([Greeter(), Greeter()])


def test_an_agent_alone_has_no_name() -> None:
    with pytest.raises(ConfigurationError, match="name each"):
        AgentDirectory(agent())  # pyright: ignore[reportArgumentType]


def test_the_same_definition_has_the_same_hash() -> None:
    assert hash_of(agent()) == hash_of(agent())


@pytest.mark.parametrize(
    "changed",
    [
        {"system_prompt": "You count well."},
        {"tools": [add, MockTool.returning("look", 1)]},
        {"tools": [FunctionTool(add, description="Sum.")]},
        {"max_steps": 3},
        {"settings": ModelSettings(temperature=0.5)},
        {"error_policy": ErrorPolicy.retry_all(2)},
        {"output_type": list[int]},
        {"at_limit": "pause"},
    ],
    ids=lambda changed: ",".join(changed),
)
def test_another_definition_has_another_hash(changed: dict[str, Any]) -> None:
    assert hash_of(agent(**changed)) != hash_of(agent())


def test_b109_a_secret_header_changes_no_hash_and_is_in_no_config() -> None:
    one = agent(settings=ModelSettings(extra_headers={"x-key": "secret-1"}))
    other = agent(settings=ModelSettings(extra_headers={"x-key": "secret-2"}))
    assert hash_of(one) == hash_of(other)
    assert "secret" not in str(AgentDirectory({"x": one}).get("x").config)


async def test_a_prepared_agent_runs_also_without_a_session() -> None:
    prepared = AgentDirectory({"x": agent()}).get("x").agent
    assert (await prepared.run("go")).final_response == "One."
