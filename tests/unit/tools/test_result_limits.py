"""Results that are too long are cut, with a note, wherever they come from."""

import json
from typing import Any

import pytest

from stepwell.agent import Agent, AgentBuilder
from stepwell.capabilities.subagents import UseSubagents
from stepwell.errors import ConfigurationError, InvalidToolError
from stepwell.hooks import Hook, HookContext, HookTrigger
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import AgentState, ToolExecution
from stepwell.testing import ScriptedModel, call
from stepwell.tools import BaseTool, FunctionTool, ToolFailure, ToolOutput, tool

LIMIT = 2_000
LONG = "\N{GRINNING FACE}é" * 5_000


def ran(agent: Agent) -> ToolExecution:
    state = agent.run_sync("go")
    (execution,) = state.steps[0].step.tool_executions
    # The model is shown the same.
    assert [m.text for m in state.messages if m.is_tool()] == [execution.text]
    return execution


def giving(value: Any) -> FunctionTool:
    return FunctionTool(lambda: value, name="say")


def agent_with(*tools: Any, **options: Any) -> Agent:
    name = tools[0].schema.name if hasattr(tools[0], "schema") else tools[0].__name__
    options = {"max_result_characters": LIMIT, **options}
    return Agent(ScriptedModel([call(name), "Done."]), tools=tools, **options)


def assert_cut(text: str, total: int, limit: int = LIMIT) -> None:
    assert len(text) <= limit
    kept, _, note = text.rpartition("... [")
    assert note.startswith(f"{total - len(kept):,} more characters; ")
    assert f"max_result_characters={limit}" in text
    text.encode()


def test_a_text_is_cut_and_says_how_much_and_by_which_setting() -> None:
    execution = ran(agent_with(giving(LONG)))
    assert_cut(execution.text, 10_000)
    assert execution.text.startswith(LONG[:1_000])
    assert execution.value == execution.text


def test_what_fits_is_left_alone() -> None:
    for value in ("x" * LIMIT, {"a": [1, 2]}, None, 7):
        execution = ran(agent_with(giving(value)))
        assert execution.value == value


@pytest.mark.parametrize(
    "value",
    [
        {"rows": ["x" * 10] * 1_000},
        ToolOutput(value={"rows": ["x" * 10] * 1_000}, metadata={"kept": "y"}),
    ],
)
def test_structured_results_are_cut_as_text(value: Any) -> None:
    execution = ran(agent_with(giving(value)))
    total = len(json.dumps({"rows": ["x" * 10] * 1_000}, separators=(",", ":")))
    assert_cut(execution.text, total)
    assert execution.value == execution.text


def test_a_failure_and_its_details_are_cut() -> None:
    failure = ToolFailure("m" * 9_000, {"log": LONG})
    execution = ran(agent_with(giving(failure)))
    assert_cut(execution.text, 9_000 + len("Error: "))
    assert isinstance(execution.value, str)
    assert len(execution.value) <= LIMIT


def test_the_text_of_an_exception_is_cut() -> None:
    def explode() -> None:
        raise ValueError(LONG)

    execution = ran(agent_with(explode))
    assert len(execution.text) <= LIMIT
    assert execution.error is not None
    assert_cut(execution.error.message, 10_000)


def test_what_a_hook_gives_instead_is_cut() -> None:
    def longer(context: HookContext) -> HookContext:
        return context.with_result(LONG)

    after = Hook(function=longer, triggers=frozenset({HookTrigger.AFTER_TOOL}))
    execution = ran(agent_with(giving("short"), hooks=[after]))
    assert_cut(execution.text, 10_000)


def test_a_tool_may_have_a_limit_of_its_own() -> None:
    @tool(max_result_characters=20_000)
    def decorated() -> str:
        """Say much."""
        return LONG

    class AsClass(BaseTool):
        name = "as_class"
        max_result_characters = 1_500

        def __call__(self) -> str:
            """Say much."""
            return LONG

    assert ran(agent_with(decorated)).text == LONG
    assert_cut(ran(agent_with(AsClass())).text, 10_000, 1_500)
    assert ran(agent_with(AsClass(max_result_characters=20_000))).text == LONG


def test_the_default_is_a_million_characters() -> None:
    for length, is_cut in ((1_000_000, False), (1_000_001, True)):
        agent = Agent(
            ScriptedModel([call("say"), "Done."]),
            tools=[giving("x" * length)],
            max_tokens=None,
        )
        assert ("more characters" in ran(agent).text) is is_cut


def test_the_answer_of_a_subagent_is_cut() -> None:
    reader = AgentSpec(name="reader", description="Reads.", system_prompt="Read.", tools=())
    model = ScriptedModel([call("spawn_subagent", subagent="reader", prompt="go"), LONG, "Done."])
    agent = Agent(
        model,
        capabilities=[UseSubagents(AgentRegistry([reader]))],
        max_result_characters=LIMIT,
    )
    state: AgentState = agent.run_sync("go")
    text = state.steps[0].step.tool_executions[0].text
    assert len(text) <= LIMIT
    assert "max_result_characters=2000" in text


@pytest.mark.parametrize("limit", [0, 999, -1, 5e6, True, "1000", None])
def test_what_is_no_limit_is_refused_at_once(limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_result_characters"):
        Agent(ScriptedModel(["x"]), max_result_characters=limit)
    with pytest.raises(ConfigurationError, match="max_result_characters"):
        AgentBuilder.base().with_max_result_characters(limit).with_model(ScriptedModel([])).build()
    if limit is not None:
        with pytest.raises(InvalidToolError, match="tool 'say': max_result_characters"):
            FunctionTool(lambda: "x", name="say", max_result_characters=limit)
