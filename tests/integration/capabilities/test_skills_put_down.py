"""The way out of a skill that allows some tools only, and what is allowed throughout."""

from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, AgentState
from stepwell.capabilities.skills import ActiveSkill, LoadSkillTool, SkillLibrary, UseSkills
from stepwell.capabilities.tasks import UseTaskPlanning
from stepwell.capabilities.user_input import UseUserInput
from stepwell.continuation import AgentStatus
from stepwell.testing import ScriptedModel, call
from tests.integration.capabilities.skills_on_disk import bash, read_file, results, write_file

LOAD = call("load_skill", name="one")
NO_ACTIVE_SKILL = call("load_skill", done=True)
TODO: dict[str, Any] = {"content": "Read it", "status": "in_progress", "activeForm": "Reading"}


def library(root: Path, front_matter: str) -> SkillLibrary:
    (root / "one").mkdir()
    text = f"---\nname: one\ndescription: About one.\n{front_matter}\n---\nDo it."
    (root / "one" / "SKILL.md").write_text(text)
    return SkillLibrary(root)


async def ran(model: ScriptedModel, skills: SkillLibrary, *more: Any) -> AgentState:
    capabilities = [UseSkills(skills), *more]
    return await Agent(model, tools=[read_file, write_file, bash], capabilities=capabilities).run(
        "Go"
    )


async def test_the_only_skill_can_be_put_down_and_all_tools_are_back(tmp_path: Path):
    skills = library(tmp_path, "allowed-tools: Read\nmodel: big")
    write = call("write_file", path="a")
    model = ScriptedModel([LOAD, write, NO_ACTIVE_SKILL, write, "Done."])

    state = await ran(model, skills)

    said = results(state)
    assert "Allowed tools while this skill is active: read_file, and always load_skill." in said[0]
    assert "call load_skill(done=True)" in said[0]
    assert said[1].endswith(
        "it allows: read_file. To continue without the skill, call load_skill(done=True), if you "
        "have that tool"
    )
    assert said[2] == "The skill 'one' is no longer active; your tools are no longer restricted."
    assert said[3] == "wrote a"
    offered = [len(request.tools) for request in model.requests]
    assert offered == [4, 2, 2, 4, 4]
    assert [request.settings.model for request in model.requests[2:4]] == ["big", None]
    assert ActiveSkill.in_(state) is None


async def test_calls_behind_it_in_one_response_are_free(tmp_path: Path):
    skills = library(tmp_path, "allowed-tools: Read")
    turns = [[LOAD, NO_ACTIVE_SKILL, call("write_file", path="a")], "Done."]

    said = results(await ran(ScriptedModel(turns), skills))

    assert said[1:] == [
        "The skill 'one' is no longer active; your tools are no longer restricted.",
        "wrote a",
    ]


async def test_with_no_skill_active_there_is_nothing_to_put_down(tmp_path: Path):
    model = ScriptedModel([NO_ACTIVE_SKILL, "Done."])
    assert results(await ran(model, library(tmp_path, ""))) == ["No skill is active."]


def test_the_schema_says_how_a_skill_is_put_down(tmp_path: Path):
    schema = LoadSkillTool(library(tmp_path, "")).schema
    done = schema.parameters["properties"]["done"]

    assert (done["type"], done["default"]) == ("boolean", False)
    assert "Deactivate the active skill" in done["description"]
    assert "done" in schema.description


async def test_asking_a_person_and_planning_are_always_allowed(tmp_path: Path):
    model = ScriptedModel(
        [
            LOAD,
            [call("todo_write", todos=[TODO]), call("user_input", id="q", question="Which?")],
            "Done.",
        ]
    )
    skills = library(tmp_path, "allowed-tools: Read, AskUserQuestion")

    state = await ran(model, skills, UseUserInput(), UseTaskPlanning())

    assert state.status is AgentStatus.PAUSED
    said = results(state)
    assert "read_file, user_input, and always load_skill, todo_write." in said[0]
    assert not said[1].startswith("Error")
    assert {tool.name for tool in model.requests[1].tools} == {
        "read_file",
        "load_skill",
        "user_input",
        "todo_write",
    }


async def test_a_fork_may_ask_a_person_as_well(tmp_path: Path):
    skills = library(tmp_path, "allowed-tools: Read\ncontext: fork")
    model = ScriptedModel([LOAD, "Audited.", "Done."])

    await ran(model, skills, UseUserInput())

    assert [tool.name for tool in model.requests[1].tools] == ["read_file", "user_input"]


ONE_AT_A_TIME = "bash runs one plain command at a time: no &&, ;, pipes, redirections"


@pytest.mark.parametrize("command", ["git add -A && git commit", "git log | head", "ls"])
async def test_a_limited_shell_says_that_it_runs_one_plain_command(tmp_path: Path, command: str):
    skills = library(tmp_path, "allowed-tools: Bash(git add:*), Bash(git commit:*)")
    calls = [call("bash", command=command), call("write_file", path="a")]

    said = results(await ran(ScriptedModel([LOAD, calls, "Done."]), skills))

    assert ONE_AT_A_TIME in said[0]
    assert "it allows: bash(git add:*), bash(git commit:*). " in said[1]
    assert ONE_AT_A_TIME in said[1]
    assert ONE_AT_A_TIME not in said[2]


async def test_a_shell_without_limits_says_nothing_of_them(tmp_path: Path):
    skills = library(tmp_path, "allowed-tools: Bash, Bash(git add:*)")
    turns = [LOAD, call("bash", command="a && b"), "Done."]

    said = results(await ran(ScriptedModel(turns), skills))

    assert ONE_AT_A_TIME not in said[0]
    assert said[1] == "ran a && b"
