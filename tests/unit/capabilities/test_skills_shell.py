from pathlib import Path

import pytest

from stepwell.capabilities.skills import LoadSkillTool, ShellPreprocessing, SkillLibrary, UseSkills
from stepwell.capabilities.skills.arguments import SkillArguments
from stepwell.capabilities.skills.shell import CommandRunner, marked_commands
from stepwell.errors import ConfigurationError, SandboxError
from stepwell.sandbox import Ending, ExecutionPolicy, SandboxResult
from stepwell.testing.fake_sandbox import FakeSandbox

POLICY = ExecutionPolicy(directory=Path("/project"), timeout=30, environment={"LANG": "C"})


async def filled(
    body: str, sandbox: FakeSandbox, arguments: str | None = None, **settings: int
) -> str:
    shell = ShellPreprocessing(policy=POLICY, sandbox=sandbox, **settings)
    given = SkillArguments.of(
        arguments, directory="/skills/demo", shown_directory="/skills/demo", body=body
    )
    return await CommandRunner(shell).fill(body, given, seconds_left=None)


def test_commands_are_found_in_lines_and_in_blocks():
    text = "On !`git status` and\n```!\nls\npwd\n```\nbut not `!ls`, a!`b`, !`` or ```!x"

    assert [found.command for found in marked_commands(text)] == ["git status", "ls\npwd"]


def test_a_block_that_is_never_closed_is_text():
    assert list(marked_commands("```!\nls\n" * 20_000)) == []


async def test_b201_each_command_is_replaced_by_its_output():
    sandbox = FakeSandbox(["main\n", "2 files\nchanged\n"])

    text = await filled("On !`git branch`:\n!`git diff`\nDone.", sandbox)

    assert text == "On main:\n2 files\nchanged\nDone."
    assert [run.argv for run in sandbox.runs] == [
        ("bash", "-c", "git branch", "skill"),
        ("bash", "-c", "git diff", "skill"),
    ]
    assert sandbox.runs[0].policy.directory == Path("/project")


async def test_arguments_reach_commands_as_parameters_and_variables_only():
    sandbox = FakeSandbox(["seen"])

    text = await filled('!`show "$1" $ARGUMENTS`: $1', sandbox, "'; rm -rf x' b")

    run = sandbox.runs[0]
    assert text == "seen: ; rm -rf x"
    assert run.argv == ("bash", "-c", 'show "$1" ${ARGUMENTS}', "skill", "; rm -rf x", "b")
    assert run.policy.environment == {
        "LANG": "C",
        "ARGUMENTS": "'; rm -rf x' b",
        "SKILL_DIR": "/skills/demo",
    }
    assert run.policy.readable == (Path("/skills/demo"),)


async def test_a_command_within_the_arguments_is_not_run():
    sandbox = FakeSandbox()

    assert await filled("Do $ARGUMENTS", sandbox, "it !`rm x`") == "Do it !`rm x`"
    assert sandbox.runs == []


async def test_a_command_within_the_output_is_not_run():
    sandbox = FakeSandbox(["!`rm x` $1"])

    assert await filled("!`cat a`", sandbox, "b") == "!`rm x` $1"
    assert len(sandbox.runs) == 1


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            SandboxResult(exit_code=2, stderr="no such file\n"),
            "[`x` failed with exit code 2: no such file]",
        ),
        (SandboxResult(exit_code=1), "[`x` failed with exit code 1]"),
        (
            SandboxResult(exit_code=0, stdout="half\n", out_of_memory=True),
            "[`x` failed with exit code 0 and used too much memory: half]",
        ),
        (
            SandboxResult(exit_code=-9, ending=Ending.TIMED_OUT, stdout="half\n"),
            "[`x` timed out after 30 seconds: half]",
        ),
        (
            SandboxResult(exit_code=-9, ending=Ending.IDLE),
            "[`x` had no output for 0 seconds and was killed]",
        ),
        (SandboxError("no bubblewrap"), "[`x` was not run: no bubblewrap]"),
    ],
)
async def test_b201_what_fails_says_so_in_its_place(result: SandboxResult | Exception, said: str):
    assert await filled("A !`x` B", FakeSandbox([result])) == f"A {said} B"


async def test_long_output_and_many_commands_are_cut():
    text = await filled("!`a` !`b`", FakeSandbox(["x" * 30]), max_output_chars=10, max_commands=1)

    assert text == (
        f"{'x' * 10}... [20 more characters] [not run, the limit is 1 commands per skill: `b`]"
    )


async def test_what_is_left_of_the_run_bounds_a_command():
    sandbox = FakeSandbox(["", ""])
    runner = CommandRunner(ShellPreprocessing(policy=POLICY, sandbox=sandbox))
    given = SkillArguments.of(None, directory=None)

    await runner.fill("!`a`", given, seconds_left=2.5)
    await runner.fill("!`a`", given, seconds_left=0.0)

    assert [run.policy.timeout for run in sandbox.runs] == [2.5, 0.001]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"policy": "/tmp"}, "policy must be"),
        ({"policy": POLICY, "sandbox": "bwrap"}, "'bwrap' is not a sandbox"),
        ({"policy": POLICY, "max_output_chars": 0}, "max_output_chars must be 1 or more"),
        ({"policy": POLICY, "max_commands": True}, "max_commands must be"),
    ],
)
def test_wrong_settings_of_the_shell_are_named(settings: dict[str, object], said: str):
    with pytest.raises(ConfigurationError, match=said):
        ShellPreprocessing(**settings)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"shell": True}, "shell must be"),
        ({"models": ["sonnet"]}, "models is"),
        ({"models": {"sonnet": 4}}, "models is"),
        ({"list_chars": -1}, "list_chars must be"),
        ({"list_chars": True}, "list_chars must be"),
    ],
)
def test_wrong_settings_of_the_capability_are_named(settings: dict[str, object], said: str):
    with pytest.raises(ConfigurationError, match=said):
        UseSkills(SkillLibrary(), **settings)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("make", [UseSkills, LoadSkillTool])
def test_a_path_is_no_library(make: type[UseSkills]):
    with pytest.raises(ConfigurationError, match="library must be a SkillLibrary"):
        make("./skills")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("roots", "settings", "said"),
    [
        ((3,), {}, "a skill root must be a path, got 3"),
        (("",), {}, "a skill root must be a path"),
        ((), {"max_file_bytes": 0}, "max_file_bytes must be 1 or more"),
        ((), {"max_resource_bytes": "1"}, "max_resource_bytes must be"),
        ((), {"trust_links": 1}, "trust_links must be True or False"),
    ],
)
def test_wrong_settings_of_the_library_are_named(
    roots: tuple[object, ...], settings: dict[str, object], said: str
):
    with pytest.raises(ConfigurationError, match=said):
        SkillLibrary(*roots, **settings)  # pyright: ignore[reportArgumentType]
