"""Skills in a real agent: loading, models, resources and commands."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent
from stepwell.capabilities.skills import LoadSkillTool, ShellPreprocessing, SkillLibrary, UseSkills
from stepwell.models import ModelSettings
from stepwell.sandbox import ExecutionPolicy
from stepwell.testing import ScriptedModel, call
from stepwell.testing.fake_sandbox import FakeSandbox
from tests.integration.capabilities.skills_on_disk import agent_of, results, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "skills"


async def loaded(root: Path, **arguments: Any) -> str:
    model = ScriptedModel([call("load_skill", **arguments), "Done."])
    return results(await agent_of(model, root).run("Go"))[0]


# Listing


async def test_b199_no_name_or_the_flag_gives_the_list(root: Path):
    write(root, "one")
    write(root, "two")
    listed = "- one: About one.\n- two: About two."

    assert await loaded(root) == listed
    assert await loaded(root, name="one", list_skills=True) == listed
    assert await loaded(root, name=" ") == listed


async def test_b199_an_empty_library_says_so(root: Path):
    assert await loaded(root) == "(no skills available)"
    assert await loaded(root, name="x") == (
        "Error: there is no skill 'x'. Available skills:\n(no skills available)"
    )


async def test_b199_an_unknown_skill_is_answered_with_the_list(root: Path):
    write(root, "one")

    assert await loaded(root, name="two") == (
        "Error: there is no skill 'two'. Available skills:\n- one: About one."
    )


async def test_b204_the_list_is_in_the_prompt_once_and_not_in_the_conversation(root: Path):
    write(root, "one")
    model = ScriptedModel([call("load_skill", name="one"), "Done.", "Again."])
    agent = agent_of(model, root)

    state = await agent.run("Go")
    state = await agent.run(state.with_user_message("More"))

    for request in model.requests:
        listing = [m for m in request.context.messages if "- one: About one." in m.text]
        assert len(listing) == 1
    assert not any("About one" in message.text for message in state.messages)


async def test_the_list_is_bounded_and_says_what_was_cut(root: Path):
    for number in range(30):
        write(root, f"skill-{number:02}")
    model = ScriptedModel(["Hi."])
    use = UseSkills(SkillLibrary(root), list_chars=200)

    await agent_of(model, root, use=use).run("Go")

    text = model.requests[0].context.messages[0].text
    assert "- skill-00: About skill-00." in text
    assert "without descriptions: skill-05" in text
    assert text.endswith("more that are not listed")
    assert len(text) < 600


async def test_long_descriptions_are_cut_and_in_one_line(root: Path):
    (root / "one").mkdir(parents=True)
    (root / "one" / "SKILL.md").write_text(f"---\ndescription: |\n  a\n  b {'x' * 400}\n---\n")

    assert await loaded(root) == f"- one: a b {'x' * 296}..."


async def test_without_room_or_skills_the_prompt_has_no_list(root: Path):
    write(root, "one")
    for use in (UseSkills(SkillLibrary(root), list_chars=0), UseSkills(SkillLibrary())):
        model = ScriptedModel(["Hi."])
        await agent_of(model, root, use=use).run("Go")

        assert model.requests[0].context.messages == ()
        assert "load_skill" in [tool.name for tool in model.requests[0].tools]


async def test_skills_that_only_users_start_are_neither_listed_nor_loaded(root: Path):
    write(root, "deploy", "disable-model-invocation: true")
    write(root, "quiet", "user-invocable: false")
    model = ScriptedModel([call("load_skill", name="deploy"), "Done."])

    state = await agent_of(model, root).run("Go")

    assert results(state) == [
        "Error: there is no skill 'deploy'. Available skills:\n- quiet: About quiet."
    ]
    assert "deploy" not in model.requests[0].context.messages[0].text
    assert "deploy" in SkillLibrary(root).names


# Loading


async def test_a_loaded_skill_shows_its_text_directory_and_resources(root: Path):
    write(root, "one", body="# One\n\nDo $1 in ${CLAUDE_SKILL_DIR}.")
    (root / "one" / "scripts").mkdir()
    (root / "one" / "scripts" / "run.sh").write_text("echo hi")

    assert await loaded(root, name="one", arguments="it") == (
        f"Skill: one\nDirectory: {root.name}/one\n"
        "Resources in its directory (read one with load_skill(name='one', resource=...)):\n"
        f"- scripts/run.sh\n\n# One\n\nDo it in {root.name}/one."
    )
    assert await loaded(root, name="one", resource="scripts/run.sh") == "echo hi"
    assert await loaded(root, name="one", resource="SKILL.md") == (
        "Error: the skill 'one' has no resource 'SKILL.md'; resources: scripts/run.sh"
    )


async def test_a_skill_below_the_current_directory_is_named_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "skills", "one", body="Do it in ${CLAUDE_SKILL_DIR}.")

    shown = await loaded(tmp_path / "skills", name="one")
    assert "Do it in skills/one." in shown
    assert str(tmp_path) not in shown


async def test_arguments_without_a_place_are_appended(root: Path):
    write(root, "one", body="Do it.")

    assert (await loaded(root, name="one", arguments="now")).endswith("Do it.\n\nARGUMENTS: now")
    assert (await loaded(root, name="one")).endswith("Do it.")


async def test_bad_arguments_are_a_failure_of_the_call(root: Path):
    write(root, "one")

    assert (await loaded(root, name="one", arguments="a\0b")) == (
        "Error: the arguments contain a NUL character"
    )


@pytest.mark.parametrize("with_shell", [False, True])
async def test_a_skill_of_many_pieces_does_not_grow_without_bounds(
    root: Path, tmp_path: Path, with_shell: bool
):
    write(root, "one", body="!`a` $1 " * 200)
    sandbox = FakeSandbox([])
    shell = ShellPreprocessing(policy=ExecutionPolicy.in_(tmp_path), sandbox=sandbox)
    use = UseSkills(SkillLibrary(root), shell=shell if with_shell else None)
    model = ScriptedModel([call("load_skill", name="one", arguments="x" * 9_000), "Done."])

    state = await Agent(model, capabilities=[use]).run("Go")

    said = state.steps[0].step.tool_executions[0].text
    assert said.startswith(
        "Error: the arguments make the skill longer by more than 1,000,000 characters"
    )
    assert sandbox.runs == []


async def test_b201_without_the_setting_commands_stay_as_they_are(root: Path):
    write(root, "one", body="On !`git log $1`: $1")

    assert (await loaded(root, name="one", arguments="x")).endswith("On !`git log $1`: x")


async def test_with_the_setting_commands_run_in_the_sandbox(root: Path, tmp_path: Path):
    write(root, "one", body="On !`git branch`. $1")
    sandbox = FakeSandbox(["main"])
    shell = ShellPreprocessing(policy=ExecutionPolicy.in_(tmp_path, timeout=9), sandbox=sandbox)
    model = ScriptedModel([call("load_skill", name="one", arguments="x"), "Done."])
    use = UseSkills(SkillLibrary(root), shell=shell)

    state = await agent_of(model, root, use=use).run("Go")

    assert results(state)[0].endswith("On main. x")
    assert sandbox.runs[0].policy.directory == tmp_path
    assert sandbox.runs[0].policy.timeout == 9


async def test_b201_commands_run_for_real(root: Path, tmp_path: Path):
    write(
        root,
        "one",
        body='!`cat here.txt`\n!`wc -l < ${CLAUDE_SKILL_DIR}/SKILL.md`\n!`echo "<$1>"`\n!`exit 3`',
    )
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "here.txt").write_text("found")
    shell = ShellPreprocessing(policy=ExecutionPolicy.in_(tmp_path / "work", timeout=20))
    hostile = "'$(touch pwned)`touch pwned`\"; touch pwned'"
    model = ScriptedModel([call("load_skill", name="one", arguments=hostile), "Done."])
    use = UseSkills(SkillLibrary(root), shell=shell)

    text = results(await agent_of(model, root, use=use).run("Go"))[0]

    assert text.endswith(
        'found\n8\n<$(touch pwned)`touch pwned`"; touch pwned>\n[`exit 3` failed with exit code 3]'
    )
    assert not (tmp_path / "work" / "pwned").exists()


# Models


async def test_b203_the_model_of_a_skill_reaches_the_request_and_keeps_all_other_settings(
    root: Path,
):
    write(root, "one", "model: big-model")
    settings = ModelSettings(model="small", temperature=0.3, seed=7, extra_body={"a": 1})
    model = ScriptedModel([call("load_skill", name="one"), "Done."])

    await agent_of(model, root, settings=settings).run("Go")

    assert model.requests[0].settings == settings
    assert model.requests[1].settings == ModelSettings(
        model="big-model", temperature=0.3, seed=7, extra_body={"a": 1}
    )


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("sonnet", "claude-sonnet-4-5"),
        ("inherit", None),
        ("opus", None),
        ("Haiku", None),
        ("opus[1m]", None),
        ("gpt-5", "gpt-5"),
    ],
)
async def test_words_for_models_are_mapped_or_ignored(
    root: Path, written: str, asked: str | None, caplog: pytest.LogCaptureFixture
):
    write(root, "one", f"model: {written}")
    model = ScriptedModel([call("load_skill", name="one"), "Done."])
    use = UseSkills(SkillLibrary(root), models={"sonnet": "claude-sonnet-4-5"})

    with caplog.at_level(logging.INFO, logger="stepwell.capabilities.skills"):
        await agent_of(model, root, use=use).run("Go")

    assert model.requests[1].settings.model == asked
    is_ignored = asked is None and written != "inherit"
    assert ("UseSkills(models=...)" in caplog.text) is is_ignored


# The tool alone


def shown_effects(root: Path, shells: Sequence[ShellPreprocessing | None]) -> list[str]:
    return [LoadSkillTool(SkillLibrary(root), shell=shell).effect for shell in shells]


def test_loading_may_be_repeated_unless_it_starts_something(root: Path, tmp_path: Path):
    write(root, "one")
    shell = ShellPreprocessing(policy=ExecutionPolicy.in_(tmp_path), sandbox=FakeSandbox())
    assert shown_effects(root, [None, shell]) == ["idempotent", "external"]

    write(root, "two", "context: fork")
    assert shown_effects(root, [None]) == ["external"]


async def test_the_tool_works_without_the_capability(root: Path):
    write(root, "one", "allowed-tools: Read")
    write(root, "two", "context: fork")
    model = ScriptedModel([call("load_skill", name="one"), call("load_skill", name="two"), "Done."])

    said = results(await Agent(model, tools=[LoadSkillTool(SkillLibrary(root))]).run("Go"))

    assert "while this skill is active: read_file, and always load_skill." in said[0]
    assert "only an agent with UseSkills can start" in said[1]
