"""AgentRegistry as a value: what it knows, what it replaces, what it refuses."""

import re
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import AgentNotFoundError, ConfigurationError
from stepwell.specs.registry import AgentRegistry, FileRemark
from stepwell.specs.spec import AgentSpec


def spec(name: str, prompt: str = "Go.") -> AgentSpec:
    return AgentSpec(name=name, description="Does it.", system_prompt=prompt)


def test_a_registry_with_more_is_a_new_one() -> None:
    empty = AgentRegistry()
    one = empty.register(spec("b"))
    two = one.register(spec("a"), spec("c"))

    assert (empty.names, one.names, two.names) == ((), ("b",), ("a", "b", "c"))
    assert [known.name for known in two.specs] == ["a", "b", "c"]
    assert len(two) == 3
    assert "a" in two
    assert "a" not in one


def test_b273_a_later_spec_replaces_one_of_the_same_name() -> None:
    registry = AgentRegistry([spec("a", "First.")]).register(spec("a", "Second."))

    assert registry.get("a").system_prompt == "Second."
    assert len(registry) == 1


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(AgentNotFoundError, match="no agent is registered as 'x'; known: a, b"):
        AgentRegistry([spec("b"), spec("a")]).get("x")


def test_only_specs_are_registered() -> None:
    with pytest.raises(ConfigurationError, match="'a' is not an AgentSpec"):
        AgentRegistry().register("a")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("agents", "write AgentRegistry().load_directory('agents')"),
        (Path("my/agents"), "write AgentRegistry().load_directory('my/agents')"),
        ("agents/critic.md", "write AgentRegistry().load_file('agents/critic.md')"),
        (spec("a"), "write AgentRegistry([spec])"),
        (5, "write AgentRegistry([spec, ...])"),
    ],
)
def test_what_is_no_list_of_specs_is_told_with_what_to_write(given: Any, instead: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(instead)):
        AgentRegistry(given)


def test_a_spec_from_code_has_no_file() -> None:
    registry = AgentRegistry([spec("a")])

    assert registry.source_of("a") is None
    with pytest.raises(AgentNotFoundError, match="'x'"):
        registry.source_of("x")


def test_a_remark_is_one_line() -> None:
    assert str(FileRemark(path="a.md", message="is odd")) == "a.md: is odd"
