"""Null for an argument with a default counts as not given; one tool alone is a set of tools."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from stepwell import Agent, AgentStatus, FunctionTool, Tools
from stepwell.drivers import ReActDriver
from stepwell.errors import ConfigurationError, InvalidToolArgumentsError
from stepwell.testing import ScriptedModel, call


def search(query: str, limit: int = 10, sort: str | None = "date", tags: list[str] = []) -> str:  # noqa: B006
    """Search."""
    return f"{query} {limit} {sort} {tags}"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"limit": None}, {}),
        ({"limit": None, "tags": None}, {}),
        ({"limit": 3, "tags": None}, {"limit": 3}),
        ({"sort": None}, {"sort": None}),
    ],
)
def test_null_counts_as_not_given_where_the_type_does_not_take_it(
    given: dict[str, Any], found: dict[str, Any]
) -> None:
    assert FunctionTool(search).validate({"query": "x", **given}) == {"query": "x", **found}


def test_null_for_a_required_argument_is_an_error() -> None:
    with pytest.raises(InvalidToolArgumentsError, match="query: Input should be a valid string"):
        FunctionTool(search).validate({"query": None})


def test_constraints_and_any_are_seen() -> None:
    def act(n: Annotated[int, Field(ge=1)] = 5, what: Any = "x") -> str:
        """Act."""
        return f"{n} {what}"

    assert FunctionTool(act).validate({"n": None, "what": None}) == {"what": None}


@pytest.mark.parametrize("driver", ["native", "react"])
async def test_the_default_is_used_on_every_driver(driver: str) -> None:
    decisions = [
        '{"thought": "", "type": "call_tool", "tool": "search", '
        '"args": {"query": "x", "limit": null}}',
        '{"thought": "", "type": "final_answer", "answer": "Done."}',
    ]
    if driver == "react":
        agent = Agent(driver=ReActDriver(ScriptedModel(decisions)), tools=[search])
    else:
        turns = [call("search", query="x", limit=None), "Done."]
        agent = Agent(ScriptedModel(turns), tools=[search])
    state = await agent.run("Go")

    assert state.status is AgentStatus.COMPLETED
    assert state.steps[0].step.tool_executions[0].text == "x 10 date []"


@pytest.mark.parametrize("one", [search, FunctionTool(search), Tools([search])])
def test_one_tool_alone_is_a_set_of_tools(one: Any) -> None:
    assert Tools(one).names == ("search",)


def test_the_name_of_a_tool_is_no_tool() -> None:
    with pytest.raises(ConfigurationError, match="'search' is the name of a tool"):
        Tools("search")  # type: ignore[arg-type]


def test_a_scripted_call_may_have_arguments_of_any_name() -> None:
    made = call("get", {"id": 7, "name": "x", "self": 1}, id="c1", more=2)

    assert (made.id, made.name) == ("c1", "get")
    assert made.arguments == {"id": 7, "name": "x", "self": 1, "more": 2}
    assert call("get", name="x", arguments=1).arguments == {"name": "x", "arguments": 1}


def test_an_argument_called_id_is_not_taken_for_the_id_of_the_call() -> None:
    with pytest.raises(ConfigurationError, match=r"call\('get', \{'id': 7\}\)"):
        call("get", id=7)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="arguments have names"):
        call("get", 7)  # type: ignore[arg-type]
