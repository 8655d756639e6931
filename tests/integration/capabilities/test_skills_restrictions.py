"""The tools that an active skill allows, in a real agent."""

from pathlib import Path
from typing import Any

import pytest

from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import UseSubagents
from stepwell.capabilities.user_input import UseUserInput
from stepwell.continuation import AgentStatus
from stepwell.hooks import HookContext, make_hook
from stepwell.messages import ToolCall
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import ScriptedModel, call
from tests.answers import answer_call
from tests.integration.capabilities.skills_on_disk import agent_of, results, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "skills"


async def test_b202_an_active_skill_restricts_tools_in_this_and_later_steps(root: Path):
    write(root, "one", "allowed-tools: Read, Bash(git add:*)")
    model = ScriptedModel(
        [
            [
                call("write_file", path="before"),
                call("load_skill", name="one"),
                call("write_file", path="a"),
                call("read_file", path="b"),
            ],
            [call("bash", command="git add ."), call("bash", command="git add . && rm x")],
            call("write_file", path="c"),
            "Done.",
        ]
    )

    state = await agent_of(model, root).run("Go")

    said = results(state)
    refusal = "it allows: read_file, bash(git add:*). "
    assert said[0] == "wrote before"
    assert "Allowed tools while this skill is active: read_file, bash(git add:*)" in said[1]
    assert said[2].startswith("Error: Blocked: the active skill 'one' does not allow this call of")
    assert refusal in said[2]
    assert said[3] == "content of b"
    assert said[4] == "ran git add ."
    assert refusal in said[5]
    assert refusal in said[6]
    offered = [[tool.name for tool in request.tools] for request in model.requests]
    assert offered[0] == ["read_file", "write_file", "bash", "load_skill"]
    assert offered[1:] == [["read_file", "bash", "load_skill"]] * 3
    assert state.metadata["active_skill"] == {
        "name": "one",
        "allowed_tools": ["read_file", "bash(git add:*)"],
        "model": None,
        "loaded_by": state.agent_id,
    }


async def test_b202_an_empty_list_restricts_nothing(root: Path):
    write(root, "one", "allowed-tools: []")
    model = ScriptedModel([call("load_skill", name="one"), call("write_file", path="a"), "Done."])

    state = await agent_of(model, root).run("Go")

    assert results(state)[1] == "wrote a"
    assert "Allowed tools" not in results(state)[0]
    assert state.metadata["active_skill"]["allowed_tools"] is None


async def test_allowed_tools_that_are_not_there_leave_only_load_skill(root: Path):
    write(root, "one", "allowed-tools: WebFetch")
    model = ScriptedModel([call("load_skill", name="one"), call("read_file", path="a"), "Done."])

    state = await agent_of(model, root).run("Go")

    assert "it allows: none of the tools here" in results(state)[1]
    assert [tool.name for tool in model.requests[1].tools] == ["load_skill"]


async def test_b202_another_skill_ends_the_restriction(root: Path):
    write(root, "one", "allowed-tools: Read")
    write(root, "two")
    turns = [
        call("load_skill", name="one"),
        call("load_skill", name="missing"),
        call("write_file", path="a"),
        call("load_skill", name="two"),
        call("write_file", path="b"),
        "Done.",
    ]

    said = results(await agent_of(ScriptedModel(turns), root).run("Go"))

    assert said[2].startswith("Error: Blocked")
    assert said[4] == "wrote b"


async def test_a_new_execution_begins_without_a_skill(root: Path):
    write(root, "one", "allowed-tools: Read\nmodel: big")
    model = ScriptedModel(
        [call("load_skill", name="one"), "Done.", call("write_file", path="a"), "Done."]
    )
    agent = agent_of(model, root)
    state = await agent.run("Go")
    assert "active_skill" in state.metadata

    state = await agent.run(state.with_metadata({"kept": 1}).with_user_message("More"))

    assert results(state)[1] == "wrote a"
    assert model.requests[2].settings.model is None
    assert state.metadata == {"kept": 1}


async def test_a_run_that_was_paused_goes_on_with_its_skill(root: Path):
    write(root, "one", "allowed-tools: Read AskUserQuestion\nmodel: big")
    model = ScriptedModel(
        [
            [call("load_skill", name="one"), call("user_input", id="q", question="Which?")],
            call("write_file", path="a"),
            "Done.",
        ]
    )
    agent = agent_of(model, root, UseUserInput())
    state = await agent.run("Go")
    assert state.status is AgentStatus.PAUSED

    state = await agent.run(answer_call(state, "q", "That."))

    assert results(state)[-1].startswith("Error: Blocked: the active skill 'one'")
    assert model.requests[1].settings.model == "big"


async def test_a_call_that_a_hook_rewrites_is_checked_as_it_runs(root: Path):
    write(root, "one", "allowed-tools: Bash(git:*)")

    def rewritten(context: HookContext) -> HookContext:
        assert context.call is not None
        if context.call.name != "bash":
            return context
        return context.with_call(ToolCall(id="", name="bash", arguments={"command": "rm x"}))

    model = ScriptedModel(
        [call("load_skill", name="one"), call("bash", command="git log"), "Done."]
    )
    hooks = [make_hook("before_tool", rewritten)]

    said = results(await agent_of(model, root, hooks=hooks).run("Go"))

    assert said[1].startswith("Error: Blocked: the active skill 'one'")


async def test_nobody_is_asked_to_approve_what_is_refused_anyway(root: Path):
    write(root, "one", "allowed-tools: Read")
    model = ScriptedModel([call("load_skill", name="one"), call("bash", command="ls"), "Done."])

    state = await agent_of(model, root, UseApprovals("bash")).run("Go")

    assert state.status is AgentStatus.COMPLETED
    assert results(state)[1].startswith("Error: Blocked: the active skill 'one'")


async def test_subagents_are_bound_by_the_skill_of_their_parent(root: Path):
    write(root, "one", "allowed-tools: Read Task\nmodel: big")
    spec = AgentSpec(name="helper", description="Helps.", system_prompt="You help.")
    model = ScriptedModel(
        [
            call("load_skill", name="one"),
            call("spawn_subagent", subagent="helper", prompt="Write it."),
            call("write_file", path="a"),
            "I could not.",
            "Done.",
        ]
    )

    state = await agent_of(model, root, UseSubagents(AgentRegistry([spec]))).run("Go")

    assert state.final_response == "Done."
    child = model.requests[2:4]
    assert "the active skill 'one' does not allow" in str(list(child[1].messages))
    assert {tool.name for tool in child[0].tools} <= {"read_file", "spawn_subagent", "load_skill"}
    assert [request.settings.model for request in model.requests] == [
        None,
        "big",
        None,
        None,
        "big",
    ]


@pytest.mark.parametrize("kept", ["odd", {"allowed_tools": "x"}])
async def test_a_restriction_that_cannot_be_read_is_not_passed_over(root: Path, kept: Any):
    write(root, "one")

    def planted(context: HookContext) -> HookContext:
        return context.with_state(context.state.with_metadata({"active_skill": kept}))

    model = ScriptedModel([call("read_file", path="a"), "Done."])
    hooks = [make_hook("before_step", planted)]

    said = results(await agent_of(model, root, hooks=hooks).run("Go"))

    assert said[0].startswith("Error: Blocked: the active skill '(unreadable)'")


async def test_a_subagent_is_asked_with_the_model_of_the_skill_that_it_loads(root: Path):
    write(root, "one", "model: big")
    write(root, "two", "model: small")
    spec = AgentSpec(name="helper", description="Helps.", system_prompt="You help.")
    model = ScriptedModel(
        [
            call("load_skill", name="one"),
            call("spawn_subagent", subagent="helper", prompt="Help."),
            call("load_skill", name="two"),
            "Helped.",
            "Done.",
        ]
    )

    await agent_of(model, root, UseSubagents(AgentRegistry([spec]))).run("Go")

    models = [request.settings.model for request in model.requests]
    assert models == [None, "big", None, "small", "big"]


@pytest.mark.parametrize(("answer", "said"), [(True, "wrote a"), (False, "denied this call")])
async def test_a_call_that_waited_is_not_bound_by_a_skill_that_was_loaded_after_it(
    root: Path, answer: bool, said: str
):
    write(root, "one", "allowed-tools: Read")
    model = ScriptedModel(
        [
            [call("write_file", id="w", path="a"), call("load_skill", name="one")],
            call("write_file", id="w", path="b"),
            "Done.",
        ]
    )
    agent = agent_of(model, root, UseApprovals("write_file"))
    state = await agent.run("Go")
    assert state.status is AgentStatus.PAUSED

    state = await agent.run(answer_call(state, "w", answer))

    assert state.status is AgentStatus.COMPLETED
    assert said in results(state)[0]
    assert results(state)[-1].startswith("Error: Blocked: the active skill 'one'")
