"""What a subagent is given: tools, model, settings, skills, driver; and what is refused early."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import Struct

from stepwell import (
    Agent,
    AgentState,
    ConfigurationError,
    ModelSettings,
    StepwellError,
    ToolContext,
)
from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.subagents import SpawnSubagentTool, SubagentPolicy, UseSubagents
from stepwell.capabilities.user_input import UseUserInput
from stepwell.drivers import ReActDriver
from stepwell.messages import Message, ToolCall
from stepwell.models import ModelPresets, ModelRequest
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentModel, AgentSpec
from stepwell.state import AgentStep, Budget
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools import BaseTool, Tools

TOOLS = ("bash", "read_file", "mcp_a", "mcp_b")


def speaker(request: ModelRequest) -> str:
    return request.context.messages[-1].text


def by_agent(turns: Mapping[str, Sequence[Any]], **parts: Any) -> ScriptedModel:
    def turn(request: ModelRequest) -> Any:
        own = turns[speaker(request)]
        return own[sum(message.is_assistant() for message in request.messages)]

    return ScriptedModel(turn, **parts)


def spec(**parts: Any) -> AgentSpec:
    return AgentSpec(**{"name": "worker", "description": "w", "system_prompt": "worker", **parts})


def spawn(name: str = "worker", id: str = "s1") -> ToolCall:
    return call("spawn_subagent", id=id, subagent=name, prompt="Do it")


def agent_of(
    *specs: AgentSpec,
    policy: SubagentPolicy | None = None,
    skills: Any = None,
    turns: Mapping[str, Sequence[Any]] | None = None,
    capabilities: Sequence[Any] = (),
    **parts: Any,
) -> tuple[Agent, ScriptedModel]:
    model = by_agent({"main": [spawn(), "Done."], "worker": ["ok"], **(turns or {})})
    tools = parts.pop("tools", [MockTool.returning(name, "x") for name in TOOLS])
    subagents = UseSubagents(AgentRegistry(specs or [spec()]), policy, skills=skills)
    given = [subagents, *capabilities]
    agent = Agent(model, system_prompt="main", tools=tools, capabilities=given, **parts)
    return agent, model


def result(state: AgentState, call_id: str = "s1") -> str:
    results = [m.tool_result for m in state.messages if m.tool_result is not None]
    return next(r.content for r in results if r.call_id == call_id)


def request_of(name: str, model: ScriptedModel) -> ModelRequest:
    return next(r for r in model.requests if speaker(r) == name)


async def given_tools(
    *specs: AgentSpec, policy: SubagentPolicy | None = None, **parts: Any
) -> tuple[str, ...]:
    agent, model = agent_of(*specs, policy=policy, **parts)
    await agent.run("Go")
    return tuple(tool.name for tool in request_of("worker", model).tools)


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ({}, (*TOOLS, "spawn_subagent")),
        ({"tools": ()}, ()),
        ({"tools": ("bash",)}, ("bash",)),
        ({"tools": ("Read", "Task")}, ("read_file", "spawn_subagent")),
        ({"tools": ("mcp_*", "Write")}, ("mcp_a", "mcp_b")),
        ({"tools": ("Bash(git:*)",)}, ()),
        ({"denied_tools": ("Bash", "mcp_b")}, ("read_file", "mcp_a", "spawn_subagent")),
        ({"tools": ("bash", "mcp_a"), "denied_tools": ("mcp_*",)}, ("bash",)),
        ({"trusted": False, "tools": ("bash", "root_shell")}, ("bash",)),
    ],
)
async def test_the_spec_chooses_among_the_tools_of_the_parent(
    parts: dict[str, Any], names: tuple[str, ...]
) -> None:
    assert await given_tools(spec(**parts)) == names


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ({"allowed_tools": ("mcp_*",)}, ("mcp_a", "mcp_b")),
        ({"allowed_tools": ()}, ()),
        ({"denied_tools": ("mcp_*", "spawn_subagent")}, ("bash", "read_file")),
        ({"allowed_tools": ("mcp_*",), "denied_tools": ("*_b",)}, ("mcp_a",)),
        ({"allowed_tools": ["bash"]}, ("bash",)),
    ],
)
async def test_the_policy_holds_whatever_the_spec_says(
    policy: dict[str, Any], names: tuple[str, ...]
) -> None:
    assert await given_tools(policy=SubagentPolicy(**policy)) == names
    asked = spec(tools=("bash", "mcp_a", "mcp_b", "read_file"))
    offered = await given_tools(asked, policy=SubagentPolicy(**policy))
    assert offered == tuple(name for name in names if name != "spawn_subagent")


async def test_a_denied_tool_can_not_be_called_all_the_same() -> None:
    turns = {"worker": [call("bash", id="b"), "ok"]}
    bash = MockTool.returning("bash", "x")
    agent, model = agent_of(spec(denied_tools=("bash",)), turns=turns, tools=[bash])
    await agent.run("Go")
    assert bash.calls == []
    assert "bash" in model.requests[2].messages[-1].text


async def test_a_grandchild_has_no_more_than_its_parent() -> None:
    turns = {"worker": [spawn("helper", "s2"), "ok"], "helper": ["fine"]}
    helper = spec(name="helper", system_prompt="helper", tools=("bash", "read_file"))
    agent, model = agent_of(spec(tools=("bash", "spawn_subagent")), helper, turns=turns)
    await agent.run("Go")
    assert [tool.name for tool in request_of("helper", model).tools] == ["bash"]


async def test_tools_that_belong_to_a_plan_are_bound_to_that_of_the_child() -> None:
    class WhoAmI(BaseTool):
        name = "who"

        def __init__(self, plan: AgentPlan | None = None) -> None:
            self.plan = plan
            super().__init__()

        def bound_to(self, plan: AgentPlan) -> "WhoAmI":
            return WhoAmI(plan)

        async def __call__(self) -> str:
            """Who has this tool?"""
            return "nobody" if self.plan is None else self.plan.context.messages[-1].text

    turns = {"worker": [[call("who", id="w")], "ok"]}
    agent, model = agent_of(turns=turns, tools=[WhoAmI()])
    await agent.run("Go")
    last = [r for r in model.requests if speaker(r) == "worker"][-1]
    assert last.messages[-1].text == "worker"


async def test_capabilities_listed_later_give_their_tools_to_the_child() -> None:
    assert "user_input" in await given_tools(capabilities=[UseUserInput()])


async def test_a_lazy_tool_is_not_built_again_for_every_child() -> None:
    built: list[str] = []

    def make() -> MockTool:
        built.append("slow")
        return MockTool.returning("slow", "x")

    turns = {"main": [[spawn(id=f"s{i}") for i in range(5)], "Done."]}
    agent, _ = agent_of(turns=turns, tools=[Tools(lazy={"slow": make})])
    await agent.run("Go")
    assert len(built) <= 2


# Models


def presets(**models: ScriptedModel) -> ModelPresets:
    table = ModelPresets()
    for name, model in models.items():
        table = table.with_preset(name, lambda model=model: model)
    return table


@pytest.mark.parametrize("word", [None, "inherit", "Inherit", "sonnet", "opus", "Haiku"])
async def test_the_model_of_the_parent_answers(word: str | None) -> None:
    agent, model = agent_of(spec(model=word), settings=ModelSettings(temperature=0.5, seed=1))
    assert result(await agent.run("Go")) == "ok"
    assert request_of("worker", model).settings == ModelSettings(temperature=0.5, seed=1)


async def test_words_for_models_of_another_program_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="stepwell.subagents")
    agent, _ = agent_of(spec(model="sonnet"))
    await agent.run("Go")
    assert "worker asks for 'sonnet', which is not a preset" in caplog.text


@pytest.mark.parametrize(
    ("word", "policy"),
    [
        ("quick", SubagentPolicy()),
        ("haiku", SubagentPolicy(models={"haiku": "quick"})),
        (AgentModel(preset="quick"), SubagentPolicy()),
    ],
)
async def test_a_preset_answers(word: Any, policy: SubagentPolicy) -> None:
    quick = by_agent({"worker": ["from quick"]}, name="quick")
    agent, model = agent_of(spec(model=word), policy=policy, model_presets=presets(quick=quick))
    assert result(await agent.run("Go")) == "from quick"
    assert [speaker(r) for r in model.requests] == ["main", "main"]


async def test_a_preset_called_like_a_foreign_word_is_used() -> None:
    sonnet = by_agent({"worker": ["from sonnet"]})
    agent, _ = agent_of(spec(model="sonnet"), model_presets=presets(sonnet=sonnet))
    assert result(await agent.run("Go")) == "from sonnet"


async def test_settings_of_the_spec_go_over_those_of_the_parent() -> None:
    own = AgentModel(settings=ModelSettings(temperature=0.0))
    agent, model = agent_of(
        spec(model=own), settings=ModelSettings(temperature=1.0, seed=7, tool_choice="required")
    )
    await agent.run("Go")
    assert request_of("worker", model).settings == ModelSettings(temperature=0.0, seed=7)
    assert request_of("main", model).settings.tool_choice == "required"


async def test_another_model_is_not_sent_what_only_the_parents_provider_may_know() -> None:
    quick = by_agent({"worker": ["ok"]})
    agent, _ = agent_of(
        spec(model=AgentModel(preset="quick", settings=ModelSettings(top_p=0.5))),
        model_presets=presets(quick=quick),
        settings=ModelSettings(
            model="big", seed=7, extra_headers={"x-key": "canary"}, extra_body={"tier": 1}
        ),
    )
    await agent.run("Go")
    assert quick.requests[0].settings == ModelSettings(seed=7, top_p=0.5)


async def test_an_unknown_preset_is_a_failure_that_says_so() -> None:
    agent, model = agent_of(spec(model="gpt-99"))
    state = await agent.run("Go")
    assert "Error: subagent 'worker' can't run: Unknown model preset 'gpt-99'" in result(state)
    assert len(model.requests) == 2


async def test_a_parent_with_a_preset_gives_it_on() -> None:
    model = by_agent({"main": [spawn(), "Done."], "worker": ["ok"]})
    agent = Agent(
        "quick",
        model_presets=presets(quick=model),
        system_prompt="main",
        capabilities=[UseSubagents(AgentRegistry([spec()]))],
    )
    assert result(await agent.run("Go")) == "ok"


# Skills


class Skill(Struct):
    body: str


class Library:
    def __init__(self, **bodies: str) -> None:
        self.bodies = bodies

    def get(self, name: str) -> Skill:
        if name not in self.bodies:
            raise StepwellError(f"no skill is called {name!r}")
        return Skill(self.bodies[name])


async def test_b186_skills_stand_before_the_prompt() -> None:
    library = Library(pdf="How to read PDFs.", git="How to use git.")
    agent, model = agent_of(spec(skills=("git", "pdf")), skills=library)
    await agent.run("Go")
    request = request_of("worker", model)
    texts = [m.text for m in request.context.messages]
    assert texts == ["How to use git.", "How to read PDFs.", "worker"]
    assert all(m.is_system() for m in request.context.messages)


@pytest.mark.parametrize("library", [Library(), {}])
async def test_an_unknown_skill_is_a_failure(library: Any) -> None:
    class Table:
        def get(self, name: str) -> Skill:
            return library[name] if isinstance(library, dict) else library.get(name)

    agent, model = agent_of(spec(skills=("pdf",)), skills=Table())
    assert "it needs the skill 'pdf'" in result(await agent.run("Go"))
    assert len(model.requests) == 2


async def test_skills_without_a_library_are_a_failure() -> None:
    agent, _ = agent_of(spec(skills=("pdf", "git"), trusted=False))
    text = result(await agent.run("Go"))
    assert "it needs the skills pdf, git, but no library is set" in text


# Drivers


async def test_a_react_parent_has_react_children() -> None:
    def decision(request: ModelRequest) -> str:
        if speaker_of_react(request) == "worker":
            return '{"thought": "t", "type": "final_answer", "answer": "from child"}'
        if any("from child" in m.text for m in request.messages):
            return '{"thought": "t", "type": "final_answer", "answer": "Done."}'
        return (
            '{"thought": "t", "type": "call_tool", "tool": "spawn_subagent", '
            '"args": {"subagent": "worker", "prompt": "Do it"}}'
        )

    def speaker_of_react(request: ModelRequest) -> str:
        texts = [m.text for m in (*request.context.messages, *request.messages)]
        return "worker" if "worker" in texts else "main"

    model = ScriptedModel(decision)
    capability = UseSubagents(AgentRegistry([spec()]))
    agent = Agent(driver=ReActDriver(model), system_prompt="main", capabilities=[capability])
    state = await agent.run("Go")
    assert (state.final_response, len(model.requests)) == ("Done.", 3)
    assert state.usage.total_tokens == 45


class OwnDriver:
    """Spawns once, then ends; it can't be made anew for a child."""

    def __init__(self) -> None:
        self.steps = 0

    async def use_tools(self, state: AgentState) -> AgentState:
        raise NotImplementedError


async def test_a_driver_that_can_not_be_given_on_is_named() -> None:
    agent, _ = agent_of()
    spawner = SpawnSubagentTool(AgentRegistry([spec()]), SubagentPolicy())
    plan = AgentPlan(driver=OwnDriver(), events=agent.events)
    asked = call("spawn_subagent", id="s1", subagent="worker", prompt="Do it")
    host = Agent(ScriptedModel([asked, "Done."]), tools=[spawner.bound_to(plan)])
    text = result(await host.run("Go"))
    assert "OwnDriver can't drive a subagent" in text
    assert "Give the driver a for_child() method" in text


async def test_a_driver_of_ones_own_says_what_drives_its_children() -> None:
    class Answering(OwnDriver):
        def bound_to(self, *parts: object, **more: object) -> "Answering":
            return self

        async def use_tools(self, state: AgentState) -> AgentState:
            return state.with_current_step(AgentStep(messages=(Message.assistant("own"),)))

    class Own(OwnDriver):
        def for_child(self) -> Answering:
            return Answering()

    spawner = SpawnSubagentTool(AgentRegistry([spec()]), SubagentPolicy())
    host = Agent(
        ScriptedModel([spawn(), "Done."]), tools=[spawner.bound_to(AgentPlan(driver=Own()))]
    )
    assert result(await host.run("Go")) == "own"


async def test_the_tool_on_its_own_says_that_it_needs_the_capability() -> None:
    tool = SpawnSubagentTool(AgentRegistry([spec()]), SubagentPolicy())
    state = await Agent(ScriptedModel([spawn(), "Done."]), tools=[tool]).run("Go")
    assert "the tool is not bound to an agent" in result(state)


# Settings that are refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_depth": 0}, "max_depth must be"),
        ({"max_depth": True}, "max_depth must be"),
        ({"max_depth": "3"}, "max_depth must be"),
        ({"summary_max_chars": 0}, "summary_max_chars must be"),
        ({"summary_max_chars": 1.5}, "summary_max_chars must be"),
        ({"allowed_tools": "bash"}, "allowed_tools must be a list of names"),
        ({"denied_tools": "bash"}, "denied_tools must be a list of names"),
        ({"denied_tools": None}, "denied_tools must be a list of names"),
        ({"allowed_tools": (3,)}, "a name in allowed_tools"),
        ({"models": ["sonnet"]}, "models must map the words"),
        ({"models": {"sonnet": None}}, "models must map the words"),
        ({"models": {3: "a"}}, "models must map the words"),
        ({"budget": 3}, "write Budget"),
        ({"budget": Budget(steps=1.5)}, "budget steps must be a number"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_refuses_what_it_can_not_keep(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        SubagentPolicy(**settings)


def test_the_capability_refuses_what_it_can_not_use() -> None:
    registry = AgentRegistry([spec()])
    with pytest.raises(ConfigurationError, match="must be an AgentRegistry"):
        UseSubagents([spec()])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"UseSubagents.with_depth\(3, registry\)"):
        UseSubagents(registry, 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="does not provide skills"):
        UseSubagents(registry, skills=["pdf"])  # type: ignore[arg-type]


async def test_a_depth_alone_is_enough() -> None:
    model = by_agent(
        {"main": [spawn(), "Done."], "worker": [spawn(id="s2"), "x" * 30]},
    )
    capability = UseSubagents.with_depth(1, AgentRegistry([spec()]), summary_max_chars=20)
    state = await Agent(model, system_prompt="main", capabilities=[capability]).run("Go")
    assert result(state) == "x" * 20 + "... [10 more characters]"
    assert "limit of 1 nested subagents" in model.requests[2].messages[-1].text


async def test_tools_keep_their_context_in_a_child() -> None:
    seen: list[str | None] = []

    async def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context.state.parent_agent_id)
        return "x"

    turns = {"worker": [[call("look")], "ok"]}
    agent, _ = agent_of(turns=turns, tools=[look])
    state = await agent.run("Go")
    assert seen == [state.agent_id]
