"""B172: tools by name, built ones and lazy ones."""

import pytest

from stepwell import Agent, BaseTool, Tools
from stepwell.errors import ConfigurationError, ToolNotFoundError
from stepwell.testing import MockTool, ScriptedModel
from stepwell.tools import Tool


class Factory:
    """Makes a tool and counts how often it was asked to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made = 0

    def __call__(self) -> Tool:
        self.made += 1
        return MockTool.returning(self.name, 1)


def ping() -> str:
    """Answer."""
    return "pong"


def test_b172_names_are_those_of_instances_and_factories() -> None:
    tools = Tools([ping, MockTool.returning("a", 1)], lazy={"b": Factory("b")})

    assert tools.names == ("ping", "a", "b")
    assert len(tools) == 3
    assert "b" in tools
    assert "c" not in tools


def test_b172_a_lazy_tool_is_built_once_when_first_needed() -> None:
    factory = Factory("b")
    tools = Tools(lazy={"b": factory})
    assert tools.names == ("b",)
    assert factory.made == 0

    assert tools.get("b") is tools.get("b")
    assert [schema.name for schema in tools.schemas] == ["b"]
    assert factory.made == 1


def test_b172_names_keep_their_order_when_a_later_one_is_built_first() -> None:
    tools = Tools(lazy={"a": Factory("a"), "b": Factory("b")})
    tools.get("b")

    assert tools.names == ("a", "b")


def test_b172_a_missing_tool_is_an_error_that_lists_the_known() -> None:
    tools = Tools([ping], lazy={"b": Factory("b")})

    with pytest.raises(ToolNotFoundError, match=r"'c' not found. Available tools: b, ping"):
        tools.get("c")
    assert tools.find("c") is None


def test_b172_an_agent_does_not_build_lazy_tools_before_it_runs() -> None:
    factory = Factory("b")
    Agent(ScriptedModel(["ok"]), tools=Tools(lazy={"b": factory}))

    assert factory.made == 0


@pytest.mark.parametrize(
    "lazy", [{}, {"ping": Factory("ping")}], ids=["two instances", "instance and factory"]
)
def test_two_tools_of_one_name_are_refused_with_advice(lazy: dict[str, Factory]) -> None:
    with pytest.raises(ConfigurationError, match=r"two tools are called 'ping': .*rename one with"):
        Tools([ping, *([] if lazy else [ping])], lazy=lazy)


def test_a_class_instead_of_an_instance_is_refused_with_advice() -> None:
    class Greet(BaseTool):
        name = "greet"

        def __call__(self) -> str:
            return "hi"

    with pytest.raises(ConfigurationError, match=r"Greet is a class; give an instance.*Greet\(\)"):
        Tools([Greet])


def test_iterating_gives_the_tools_in_order() -> None:
    tools = Tools([ping], lazy={"b": Factory("b")})

    assert [tool.schema.name for tool in tools] == ["ping", "b"]


def test_a_factory_whose_tool_has_another_name_is_refused_when_built() -> None:
    tools = Tools(lazy={"search": Factory("find")})

    with pytest.raises(ConfigurationError, match=r"search.*find"):
        tools.get("search")
