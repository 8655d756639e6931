"""A driver of the user's own gets everything that the agent around it has, or is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentRegistry,
    AgentSpec,
    AgentState,
    AgentStatus,
    ConfigurationError,
    Message,
    ModelSettings,
    Tools,
    UseApprovals,
    UseSubagents,
    make_hook,
)
from stepwell.drivers import BindableDriver, ReActDriver, ToolCallingDriver
from stepwell.hooks import HookStack
from stepwell.models import CachedContext
from stepwell.state import AgentStep
from stepwell.testing import DeterministicAgentDriver, FakeClock, MockTool, ScriptedModel, call
from stepwell.tools import ToolExecutor

DELETE = MockTool.returning("delete", "gone")
REACT_CALL = '{"thought": "", "type": "call_tool", "tool": "delete", "args": {}}'
REACT_END = '{"thought": "", "type": "final_answer", "answer": "Done."}'


def deleting_model(kind: type) -> ScriptedModel:
    script = [REACT_CALL, REACT_END] if kind is ReActDriver else [call("delete", id="c1"), "Done."]
    return ScriptedModel(script)


class PlainDriver:
    """A driver with the one method that is required."""

    async def use_tools(self, state: AgentState) -> AgentState:
        return state.with_current_step(AgentStep(messages=(Message.assistant("Plain."),)))


@pytest.mark.parametrize("kind", [ToolCallingDriver, ReActDriver])
@pytest.mark.parametrize("tools_in", ["agent", "driver"])
@pytest.mark.parametrize("door", ["builder", "constructor"])
async def test_a_call_that_needs_approval_pauses(kind: Any, tools_in: str, door: str) -> None:
    calls: list[str] = []
    delete = MockTool("delete", lambda: calls.append("ran"))
    own = ToolExecutor(Tools([delete])) if tools_in == "driver" else None
    driver = kind(deleting_model(kind), own)
    tools = [delete] if tools_in == "agent" else []
    if door == "builder":
        builder = AgentBuilder.base().with_driver(driver).with_tools(tools)
        agent = builder.with_capability(UseApprovals("delete")).build()
    else:
        agent = Agent(driver=driver, tools=tools, capabilities=[UseApprovals("delete")])
    state = await agent.run("Delete it")

    assert (state.status, calls) == (AgentStatus.PAUSED, [])
    assert [waits.tool_name for waits in state.pending] == ["delete"]


async def test_the_usual_driver_given_by_hand_sees_prompt_settings_hooks_and_tools() -> None:
    seen: list[str] = []
    model = ScriptedModel([call("delete"), '{"result": 3}'])
    driver = ToolCallingDriver(
        model,
        hooks=HookStack(
            [make_hook(["before_inference", "after_step"], lambda _: seen.append("own"))]
        ),
        context=CachedContext(messages=[Message.system("Own.")]),
        settings=ModelSettings(temperature=0.1),
    )
    agent = Agent(
        driver=driver,
        tools=[DELETE],
        system_prompt="Agent's.",
        settings=ModelSettings(temperature=0.9, seed=7, tool_choice="auto"),
        output_type=int,
        hooks=[make_hook("before_inference", lambda _: seen.append("agent's"))],
    )
    state = await agent.run("Go")
    request = model.requests[0]

    assert state.output == 3
    assert [message.text for message in request.context.messages] == ["Agent's.", "Own."]
    assert (request.settings.temperature, request.settings.seed) == (0.1, 7)
    assert [tool.name for tool in request.tools] == ["delete"]
    assert request.format is not None
    assert seen == ["agent's", "own", "own"] * 2


async def test_tools_of_driver_and_agent_are_offered_together() -> None:
    model = ScriptedModel(["Hi."])
    driver = ToolCallingDriver(model, ToolExecutor(Tools([DELETE])))
    await Agent(driver=driver, tools=[MockTool.returning("look", "seen")]).run("Go")

    assert [tool.name for tool in model.requests[0].tools] == ["look", "delete"]


def test_one_name_for_two_tools_of_driver_and_agent_is_refused() -> None:
    driver = ToolCallingDriver(ScriptedModel([]), ToolExecutor(Tools([DELETE])))
    with pytest.raises(ConfigurationError, match="two tools are called 'delete'"):
        Agent(driver=driver, tools=[MockTool.returning("delete", "other")])


async def test_hooks_of_a_drivers_executor_hold_and_run_once() -> None:
    seen: list[str] = []
    hook = make_hook(["before_tool", "after_inference"], lambda c: seen.append(str(c.trigger)))
    stack = HookStack([hook])
    executor = ToolExecutor(Tools([DELETE]), hooks=stack)
    driver = ToolCallingDriver(deleting_model(ToolCallingDriver), executor, hooks=stack)
    await Agent(driver=driver, hooks=[hook]).run("Go")

    assert seen == ["after_inference", "before_tool", "after_inference"]


@pytest.mark.parametrize(
    ("named", "executor"),
    [
        ("raise_on_failure", lambda: ToolExecutor(Tools([DELETE]), raise_on_failure=True)),
        ("max_parallel", lambda: ToolExecutor(Tools([DELETE]), max_parallel=1)),
        ("a clock", lambda: ToolExecutor(Tools([DELETE]), clock=FakeClock())),
    ],
)
def test_what_an_executor_was_set_to_and_an_agent_lacks_is_refused(
    named: str, executor: Callable[[], ToolExecutor]
) -> None:
    with pytest.raises(ConfigurationError, match=f"executor of ToolCallingDriver.*{named}"):
        Agent(driver=ToolCallingDriver(ScriptedModel([]), executor()))


def test_the_same_settings_in_executor_and_agent_are_fine() -> None:
    clock = FakeClock()
    executor = ToolExecutor(Tools([DELETE]), max_parallel=2, clock=clock)
    agent = Agent(
        driver=ToolCallingDriver(ScriptedModel([]), executor), max_parallel_tools=2, clock=clock
    )
    again = Agent.from_plan(agent.plan.complete())

    assert Tools(again.plan.tools).names == ("delete",)


@pytest.mark.parametrize(
    ("ignored", "parts"),
    [
        (r"tools \(delete\)", {"tools": [DELETE]}),
        ("system prompt or cached context", {"system_prompt": "Be kind."}),
        ("response format or output type", {"output_type": int}),
        (
            r"model settings ModelSettings\(temperature=0.5\)",
            {"settings": ModelSettings(temperature=0.5)},
        ),
        ("max_parallel_tools=2", {"max_parallel_tools": 2}),
        (r"hooks \(mine: before_tool\)", {"hooks": [make_hook("before_tool", print, name="mine")]}),
        ("tools.*; hooks", {"tools": [DELETE], "capabilities": [UseApprovals("delete")]}),
    ],
)
def test_a_driver_that_can_not_be_bound_is_refused_with_what_it_would_ignore(
    ignored: str, parts: dict[str, Any]
) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"PlainDriver would ignore .*{ignored}.*bound_to"
    ):
        Agent(driver=PlainDriver(), **parts)


def test_every_ignored_part_is_named_by_the_builder_as_well() -> None:
    builder = AgentBuilder.base().with_driver(PlainDriver()).with_tools(DELETE)
    with pytest.raises(ConfigurationError, match=r"tools \(delete\); the system prompt"):
        builder.with_system_prompt("Be kind.").build()


async def test_what_the_loop_does_itself_needs_no_binding() -> None:
    seen: list[str] = []
    agent = Agent(
        driver=PlainDriver(),
        max_steps=3,
        hooks=[make_hook(["before_step", "after_step"], lambda c: seen.append(str(c.trigger)))],
    )
    state = await agent.run("Go")

    assert (state.final_response, seen) == ("Plain.", ["before_step", "after_step"])


@pytest.mark.parametrize("kind", [ToolCallingDriver, ReActDriver, DeterministicAgentDriver])
def test_the_drivers_that_come_along_can_be_bound(kind: Any) -> None:
    driver = kind() if kind is DeterministicAgentDriver else kind(ScriptedModel([]))
    assert isinstance(driver, BindableDriver)


@pytest.mark.parametrize("model", ["gpt-9", ScriptedModel, None])
def test_something_else_than_a_model_is_refused(model: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a model; give a ToolCallingDriver"):
        ToolCallingDriver(model)


async def test_a_subagent_has_only_the_tools_that_its_spec_names() -> None:
    """Tools of the driver are the agent's own, so that what a child may use can be bounded."""
    model = ScriptedModel(
        [call("spawn_subagent", id="s", subagent="poet", prompt="A line."), "A line.", "Done."]
    )
    poet = AgentSpec(name="poet", description="Writes.", system_prompt="Write.", tools=())
    driver = ToolCallingDriver(model, ToolExecutor(Tools([DELETE])))
    state = await Agent(driver=driver, capabilities=[UseSubagents(AgentRegistry([poet]))]).run("Go")

    assert state.final_response == "Done."
    assert [tool.name for tool in model.requests[0].tools] == ["spawn_subagent", "delete"]
    assert model.requests[1].tools == ()
    assert [message.text for message in model.requests[1].context.messages] == ["Write."]
