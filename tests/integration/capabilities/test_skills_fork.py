"""Skills that run in an agent of their own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, AgentState
from stepwell.agent import AgentPlan
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.skills import ShellPreprocessing, SkillLibrary, UseSkills
from stepwell.capabilities.skills.fork import FORK_BUDGET
from stepwell.capabilities.subagents import UseSubagents
from stepwell.capabilities.user_input import UseUserInput
from stepwell.continuation import AgentStatus, Cancellation, StopReason
from stepwell.events import AgentEvent, AgentFinished, SubagentCompleted, SubagentSpawning
from stepwell.hooks import HookContext, make_hook
from stepwell.messages import Usage
from stepwell.models import ModelRequest, ModelResponse
from stepwell.sandbox import ExecutionPolicy
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import Budget
from stepwell.testing import DeterministicAgentDriver, ScriptedModel, call
from stepwell.testing.fake_sandbox import FakeSandbox
from tests.answers import answer_call
from tests.integration.capabilities.skills_on_disk import TOOLS, results

LOAD = call("load_skill", name="audit", arguments="src")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "skills"


def write(root: Path, front_matter: str = "", body: str = "Audit $1.") -> SkillLibrary:
    (root / "audit").mkdir(parents=True, exist_ok=True)
    text = f"---\nname: audit\ndescription: Audits.\ncontext: fork\n{front_matter}\n---\n{body}"
    (root / "audit" / "SKILL.md").write_text(text)
    return SkillLibrary(root)


def agent_of(model: Any, library: SkillLibrary, *more: Any, **options: Any) -> Agent:
    return Agent(model, tools=TOOLS, capabilities=[UseSkills(library), *more], **options)


def test_b205_the_limits_of_a_fork_are_ten_steps_16384_tokens_and_two_minutes():
    assert Budget(steps=10, tokens=16_384, seconds=120.0) == FORK_BUDGET


async def test_b205_the_answer_of_the_fork_is_the_result_and_its_conversation_stays_its_own(
    root: Path,
):
    model = ScriptedModel(
        [LOAD, call("read_file", path="src"), "No findings.", "All good."],
        usage=Usage(input_tokens=10, output_tokens=5),
        cost=0.25,
    )

    state = await agent_of(model, write(root), system_prompt="You lead.").run("Go")

    assert state.final_response == "All good."
    assert results(state) == ["No findings."]
    assert (state.usage.total_tokens, state.cost) == (60, 1.0)
    prompt = list(model.requests[1].messages)
    assert [message.text for message in prompt] == [
        f"Skill: audit\nDirectory: {root.name}/audit\n\nAudit src."
    ]
    assert "You lead." not in str(model.requests[1].context)
    assert "active_skill" not in state.metadata


async def test_a_fork_has_the_allowed_tools_only_and_loads_no_skills(root: Path):
    library = write(root, "allowed-tools: Read, Bash(git:*), Skill")
    model = ScriptedModel(
        [
            LOAD,
            [call("bash", command="rm x"), call("bash", command="git log"), call("write_file")],
            "Audited.",
            "Done.",
        ]
    )

    state = await agent_of(model, library).run("Go")

    assert results(state) == ["Audited."]
    assert [tool.name for tool in model.requests[1].tools] == ["read_file", "bash"]
    said = [m.tool_result.content for m in model.requests[2].messages if m.tool_result]
    assert "the active skill 'audit' does not allow this call of bash" in said[0]
    assert said[1] == "ran git log"
    assert "the active skill 'audit' does not allow this call of write_file" in said[2]
    assert len(model.requests[3].tools) == 4


async def test_without_an_allow_list_a_fork_has_all_tools_but_load_skill(root: Path):
    model = ScriptedModel([LOAD, "Audited.", "Done."])

    await agent_of(model, write(root)).run("Go")

    assert [tool.name for tool in model.requests[1].tools] == ["read_file", "write_file", "bash"]


async def test_a_fork_reads_its_resources(root: Path):
    library = write(root, "allowed-tools: Read")
    (root / "audit" / "references").mkdir()
    (root / "audit" / "references" / "rules.md").write_text("Rule 1.")
    model = ScriptedModel(
        [
            LOAD,
            [
                call("read_skill_resource", resource="references/rules.md"),
                call("read_skill_resource", resource="SKILL.md"),
            ],
            "Audited.",
            "Done.",
        ]
    )

    await agent_of(model, library).run("Go")

    said = [m.tool_result.content for m in model.requests[2].messages if m.tool_result]
    assert said[0] == "Rule 1."
    assert said[1].startswith("Error: the skill 'audit' has no resource 'SKILL.md'")
    assert (
        "read one with read_skill_resource(resource=...)"
        in next(iter(model.requests[1].messages)).text
    )


async def test_a_fork_is_asked_with_the_model_of_its_skill(root: Path):
    model = ScriptedModel([LOAD, "Audited.", "Done."])

    await agent_of(model, write(root, "model: big")).run("Go")

    assert [request.settings.model for request in model.requests] == [None, "big", None]


async def test_b205_a_fork_ends_after_ten_steps(root: Path):
    def turn(request: ModelRequest) -> Any:
        if "load_skill" not in [tool.name for tool in request.tools]:
            return call("read_file", path=f"page {len(model.requests)}")
        return LOAD if len(list(request.messages)) == 1 else "Done."

    model = ScriptedModel(turn)

    state = await agent_of(model, write(root), max_tokens=None).run("Go")

    assert len(model.requests) == 12
    assert results(state)[0].startswith("Error: the skill 'audit' did not finish.")
    assert state.final_response == "Done."


async def test_b205_a_fork_has_two_minutes_at_most_and_no_more_than_its_parent_has_left(root: Path):
    library = write(root)
    for timeout, most in ((300, 120), (20, 20)):
        model = ScriptedModel([LOAD, "Audited.", "Done."])

        await agent_of(model, library, timeout=timeout).run("Go")

        left = model.requests[1].seconds_left
        assert left is not None
        assert most - 10 < left <= most


async def test_b205_a_fork_ends_at_its_tokens_and_they_count_for_the_parent(root: Path):
    big = ModelResponse(tool_calls=(call("read_file", path="a"),), usage=Usage(input_tokens=16_384))
    model = ScriptedModel([LOAD, big, "Done."])

    state = await agent_of(model, write(root), max_tokens=100_000).run("Go")

    assert results(state)[0].startswith("Error: the skill 'audit' did not finish.")
    assert state.usage.total_tokens == 16_384 + 30


async def test_a_fork_spends_no_more_than_its_parent_has_left(root: Path):
    model = ScriptedModel([LOAD, *[call("read_file", path="a")] * 9], usage=Usage(input_tokens=10))

    state = await agent_of(model, write(root), max_tokens=40).run("Go")

    assert len(model.requests) == 4
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TOKEN_LIMIT


async def test_a_turn_counts_once_when_subagents_are_used_as_well(root: Path):
    model = ScriptedModel([LOAD, *[call("read_file", path="a")] * 9], usage=Usage(input_tokens=10))
    spec = AgentSpec(name="helper", description="Helps.", system_prompt="You help.")

    await agent_of(model, write(root), UseSubagents(AgentRegistry([spec])), max_tokens=40).run("Go")

    assert len(model.requests) == 4


async def test_a_fork_that_fails_is_a_failed_call(root: Path):
    model = ScriptedModel([LOAD, RuntimeError("the line is dead"), "Done."])

    state = await agent_of(model, write(root)).run("Go")

    assert results(state)[0].startswith("Error: the skill 'audit' did not finish.")
    assert "the line is dead" in results(state)[0]
    assert state.final_response == "Done."


async def test_a_fork_without_an_answer_says_so(root: Path):
    model = ScriptedModel([LOAD, "", "", "Done."])

    state = await agent_of(model, write(root)).run("Go")

    assert results(state)[0].startswith("Error: the skill 'audit' did not finish.")
    assert "the model's answer is empty, and so was the one before" in results(state)[0]
    assert state.final_response == "Done."


async def test_cancelling_the_run_ends_the_fork(root: Path):
    cancellation = Cancellation()
    events: list[AgentEvent] = []

    async def wait() -> str:
        "Waits."
        cancellation.request("enough")
        await asyncio.sleep(60)
        return "never"

    model = ScriptedModel([LOAD, call("wait")])
    agent = Agent(model, tools=[wait], capabilities=[UseSkills(write(root))])
    agent.wiretap(events.append)

    state = await agent.run("Go", cancellation=cancellation)

    assert state.status is AgentStatus.CANCELLED
    ended = [event for event in events if isinstance(event, AgentFinished)]
    assert [event.parent_agent_id for event in ended] == [state.agent_id, None]


async def test_what_parents_do_before_tools_holds_in_forks(root: Path):
    def denied(context: HookContext) -> HookContext | None:
        is_bash = context.call is not None and context.call.name == "bash"
        return context.block("no shell here") if is_bash else None

    model = ScriptedModel([LOAD, call("bash", command="ls"), "Audited.", "Done."])

    await agent_of(model, write(root), hooks=[make_hook("before_tool", denied)]).run("Go")

    said = [m.tool_result.content for m in model.requests[2].messages if m.tool_result]
    assert said == ["Error: Blocked: no shell here"]


async def test_a_fork_that_asks_a_person_makes_its_parent_wait(root: Path, tmp_path: Path):
    library = write(root, body="Audit !`pwd`.")
    sandbox = FakeSandbox(["here"])
    shell = ShellPreprocessing(policy=ExecutionPolicy.in_(tmp_path), sandbox=sandbox)
    model = ScriptedModel(
        [
            call("load_skill", id="load", name="audit"),
            [call("user_input", question="Which?"), call("bash", command="ls")],
            "Audited that.",
            "Done.",
        ]
    )
    agent = Agent(
        model,
        tools=TOOLS,
        capabilities=[UseSkills(library, shell=shell), UseUserInput(), UseApprovals("bash")],
    )

    state = await agent.run("Go")
    assert state.status is AgentStatus.PAUSED
    assert [asked.call_id for asked in state.pending] == ["load"]
    assert state.pending[0].prompt.startswith("audit: May bash run")
    assert state.pending[0].details["skill"] == "audit"
    state = await agent.run(answer_call(state, "load", True))
    assert state.status is AgentStatus.PAUSED
    assert [asked.prompt for asked in state.pending] == ["audit: Which?"]
    state = await agent.run(answer_call(state, "load", "That one."))

    assert state.final_response == "Done."
    assert results(state)[-1] == "Audited that."
    said = [m.tool_result.content for m in model.requests[2].messages if m.tool_result]
    assert said == ["That one.", "ran ls"]
    assert len(sandbox.runs) == 1


async def test_loading_a_fork_can_itself_be_approved(root: Path):
    model = ScriptedModel([call("load_skill", id="load", name="audit"), "Audited.", "Done."])
    agent = agent_of(model, write(root), UseApprovals("load_skill"))

    state = await agent.run("Go")
    assert len(model.requests) == 1
    state = await agent.run(answer_call(state, "load", True))

    assert results(state)[-1] == "Audited."


async def test_a_fork_in_a_subagent_has_no_more_tools_than_the_subagent(root: Path):
    spec = AgentSpec(
        name="helper", description="Helps.", system_prompt="You help.", tools=("Read", "Skill")
    )
    model = ScriptedModel(
        [
            call("spawn_subagent", subagent="helper", prompt="Audit."),
            LOAD,
            call("bash", command="ls"),
            "Audited.",
            "Helped.",
            "Done.",
        ]
    )

    state = await agent_of(model, write(root), UseSubagents(AgentRegistry([spec]))).run("Go")

    assert state.final_response == "Done."
    assert [tool.name for tool in model.requests[2].tools] == ["read_file"]
    said = [m.tool_result.content for m in model.requests[3].messages if m.tool_result]
    assert "Tool 'bash' not found" in said[0]


async def test_a_driver_that_belongs_to_its_tools_cannot_fork(root: Path):
    class Odd:
        def __init__(self) -> None:
            self._driver = DeterministicAgentDriver.from_responses("x")

        async def use_tools(self, state: AgentState) -> AgentState:
            return await self._driver.use_tools(state)

    library = write(root)
    plan = AgentPlan(tools=TOOLS, driver=Odd()).with_capability(UseSkills(library)).complete()
    tool = next(tool for tool in plan.tools if getattr(tool, "name", "") == "load_skill")

    state = await Agent(ScriptedModel([LOAD, "Done."]), tools=[tool]).run("Go")

    assert results(state)[0].startswith(
        "Error: the skill 'audit' can't run in its own agent: Odd can't"
    )


async def test_listeners_are_told_of_a_fork_as_of_a_subagent(root: Path):
    load = call("load_skill", id="load", name="audit", arguments="src")
    agent = agent_of(ScriptedModel([load, "No findings.", "Done."]), write(root))
    events: list[SubagentSpawning | SubagentCompleted] = []
    for kind in (SubagentSpawning, SubagentCompleted):
        agent.on_event(kind, events.append)

    state = await agent.run("Go")

    spawning, completed = events
    assert isinstance(spawning, SubagentSpawning)
    assert isinstance(completed, SubagentCompleted)
    assert spawning.prompt.startswith("Skill: audit\n")
    assert (completed.status, completed.steps) == (AgentStatus.COMPLETED, 1)
    assert completed.usage.total_tokens == 15
    for event in events:
        assert (event.name, event.depth, event.max_depth) == ("audit", 0, 1)
        assert event.call_id == "load"
        assert event.agent_id == state.agent_id
        assert event.child_agent_id not in ("", state.agent_id)


async def test_a_question_from_below_says_which_skill_and_which_agent_asks(root: Path):
    spec = AgentSpec(name="helper", description="Helps.", system_prompt="You help.")
    model = ScriptedModel(
        [
            call("spawn_subagent", id="s", subagent="helper", prompt="Audit."),
            LOAD,
            call("bash", command="ls"),
            "Audited.",
            "Helped.",
            "Done.",
        ]
    )
    subagents = UseSubagents(AgentRegistry([spec]))
    agent = agent_of(model, write(root), subagents, UseApprovals("bash"))

    state = await agent.run("Go")

    [asked] = state.pending
    assert asked.prompt.startswith("helper: audit: May bash run")
    assert asked.details["subagent"] == "helper"
    assert asked.details["skill"] == "audit"
    assert asked.details["asked_by"] == "bash"
    state = await agent.run(answer_call(state, "s", True))
    assert state.final_response == "Done."


async def test_subagents_of_a_fork_are_asked_without_its_model(root: Path):
    spec = AgentSpec(name="helper", description="Helps.", system_prompt="You help.")
    spawn = call("spawn_subagent", subagent="helper", prompt="Help.")
    model = ScriptedModel([LOAD, spawn, "Helped.", "Audited.", "Done."])

    subagents = UseSubagents(AgentRegistry([spec]))
    await agent_of(model, write(root, "model: big"), subagents).run("Go")

    models = [request.settings.model for request in model.requests]
    assert models == [None, "big", None, "big", None]
